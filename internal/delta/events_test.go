package delta_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

func TestEventsAreThoseOfEachRow(t *testing.T) {
	s := &store{rows: map[string]int{"gone": 3, "stale": 1}, fail: map[string]error{"bad": errors.New("no space")}}
	tab := newTable(s, nil)
	if _, err := tab.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	tab.OnApplied(func(e delta.Applied[string, int]) {
		now, there := tab.Believed(e.Key)
		got = append(got, fmt.Sprintf("%s %s: %d %t, now %d %t", e.Op, e.Key, e.Before, e.Had, now, there))
	})
	tab.OnRefused(func(c delta.Change[string, int], err error) {
		got = append(got, fmt.Sprintf("%s %s: %s", c.Op, c.Key, err))
	})
	tab.SetDesired("stale", 2)
	tab.SetDesired("new", 5)
	tab.SetDesired("bad", 1)
	tab.ApplyUpdates(t.Context(), all)
	tab.ApplyDeletes(t.Context(), all)
	want := []string{
		"add bad: no space",
		"add new: 0 false, now 5 true",
		"update stale: 1 true, now 2 true",
		"delete gone: 3 true, now 0 false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events:\n%q\nwant:\n%q", got, want)
	}
}

// A subscriber that records a loss must not take away that a refused row rests.
func TestRefusedRowRestsWhateverASubscriberRecords(t *testing.T) {
	s := &store{rows: map[string]int{}, fail: map[string]error{"bad": errors.New("no such set")}}
	tab := newTable(s, nil)
	tab.OnRefused(func(c delta.Change[string, int], _ error) { tab.DropActual(c.Key) })
	tab.SetDesired("bad", 1)
	tab.ApplyUpdates(t.Context(), all)
	tab.ApplyUpdates(t.Context(), delta.Pass{})
	if len(s.writes) != 1 {
		t.Errorf("written %d times, want once before the next retry", len(s.writes))
	}
}
