package delta_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// store is a Store in memory that fails on demand.
type store struct {
	rows   map[string]int
	fail   map[string]error
	listed error
	writes []int // batch sizes
}

func (s *store) List(context.Context) (map[string]int, error) {
	return maps.Clone(s.rows), s.listed
}

func (s *store) Write(_ context.Context, changes []delta.Change[string, int]) []error {
	s.writes = append(s.writes, len(changes))
	errs := make([]error, len(changes))
	for i, c := range changes {
		if errs[i] = s.fail[c.Key]; errs[i] != nil {
			continue
		}
		if c.Op == delta.Delete {
			delete(s.rows, c.Key)
		} else {
			s.rows[c.Key] = c.Value
		}
	}
	return errs
}

func newTable(s *store, change func(*delta.Options[string, int])) *delta.Table[string, int] {
	opts := delta.Options[string, int]{Name: "rows", Compare: cmp.Compare[string], Equal: intEqual}
	if change != nil {
		change(&opts)
	}
	return delta.NewTable(s, opts)
}

func TestApplyConverges(t *testing.T) {
	s := &store{rows: map[string]int{"orphan": 1, "stale": 1}}
	tab := newTable(s, nil)
	if _, err := tab.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	tab.SetDesired("stale", 2)
	tab.SetDesired("new", 1)
	out := tab.ApplyUpdates(t.Context(), all).Plus(tab.ApplyDeletes(t.Context(), all))
	if out.Took = 0; out != (delta.Outcome{Adds: 1, Updates: 1, Deletes: 1}) {
		t.Errorf("outcome %+v, want a row each", out)
	}
	if diff := gocmp.Diff(map[string]int{"stale": 2, "new": 1}, s.rows); diff != "" {
		t.Errorf("store (-want +got):\n%s", diff)
	}
	batches := len(s.writes)
	tab.ApplyUpdates(t.Context(), all)
	tab.ApplyDeletes(t.Context(), all)
	if len(s.writes) != batches {
		t.Error("a second pass wrote although nothing was pending")
	}
}

func TestFailedRowStaysPendingAndNeighboursGoOn(t *testing.T) {
	broken := errors.New("broken")
	s := &store{rows: map[string]int{}, fail: map[string]error{"b": broken}}
	tab := newTable(s, nil)
	for _, k := range []string{"a", "b", "c"} {
		tab.SetDesired(k, 1)
	}
	out := tab.ApplyUpdates(t.Context(), all)
	if out.Adds != 2 || out.Failed != 1 || !errors.Is(out.Err(), broken) {
		t.Fatalf("outcome %+v", out)
	}
	s.fail = nil
	if out = tab.ApplyUpdates(t.Context(), all); out.Adds != 1 || s.writes[1] != 1 {
		t.Errorf("retry %+v wrote %v rows, want only the failed one", out, s.writes)
	}
}

func TestManyFailuresAreOneShortMessage(t *testing.T) {
	s := &store{rows: map[string]int{}, fail: map[string]error{}}
	tab := newTable(s, func(o *delta.Options[string, int]) { o.Batch = 10 })
	for i := range 100 {
		k := fmt.Sprintf("row %02d", i)
		s.fail[k] = errors.New(k)
		tab.SetDesired(k, 1)
	}
	out := tab.ApplyUpdates(t.Context(), all)
	if want := "row 00; row 01; row 02; and 97 more"; out.Failed != 100 || out.Err().Error() != want {
		t.Errorf("%d failed: %v, want %s", out.Failed, out.Err(), want)
	}
}

func TestStoreThatDoesNotAnswerIsAskedOnce(t *testing.T) {
	s := &store{rows: map[string]int{}, fail: map[string]error{}}
	tab := newTable(s, func(o *delta.Options[string, int]) { o.Batch = 10 })
	for i := range 100 {
		k := fmt.Sprintf("row %02d", i)
		s.fail[k] = fmt.Errorf("%s: %w", k, context.DeadlineExceeded)
		tab.SetDesired(k, 1)
	}
	if out := tab.ApplyUpdates(t.Context(), all); out.Failed != 10 || len(s.writes) != 1 {
		t.Errorf("%d failed in %d batches, want 10 in one", out.Failed, len(s.writes))
	}
	clear(s.fail)
	if out := tab.ApplyUpdates(t.Context(), all); out.Adds != 100 {
		t.Errorf("outcome %+v after recovery", out)
	}
}

func TestForeignRowsAreInvisible(t *testing.T) {
	s := &store{rows: map[string]int{"ours": 1, "theirs": 1, "wanted": 1}}
	tab := newTable(s, func(o *delta.Options[string, int]) { o.Owned = func(k string) bool { return k == "ours" } })
	tab.SetDesired("wanted", 1)
	if _, err := tab.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	tab.ApplyUpdates(t.Context(), all)
	tab.ApplyDeletes(t.Context(), all)
	if diff := gocmp.Diff(map[string]int{"theirs": 1, "wanted": 1}, s.rows); diff != "" {
		t.Errorf("store (-want +got):\n%s", diff)
	}
}

func TestReadErrorIsNeverAbsent(t *testing.T) {
	s := &store{rows: map[string]int{"a": 1}}
	tab := newTable(s, nil)
	tab.SetDesired("a", 1)
	if _, err := tab.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.listed = errors.New("interrupted")
	if _, err := tab.Load(t.Context()); !errors.Is(err, s.listed) {
		t.Fatalf("error %v", err)
	}
	if c := tab.Counts(); c.Pending() != 0 {
		t.Errorf("a failed read made %d rows pending", c.Pending())
	}
}

func TestHoldKeepsRows(t *testing.T) {
	s := &store{rows: map[string]int{"parent's": 1, "own": 1}}
	tab := newTable(s, func(o *delta.Options[string, int]) {
		o.Hold = func(k string, orphans bool) bool { return orphans && k == "parent's" }
	})
	if _, err := tab.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := tab.ApplyDeletes(t.Context(), all); out.Deletes != 1 {
		t.Errorf("outcome %+v, want one deleted and one held", out)
	}
	if !tab.PendingDelete("parent's") {
		t.Error("the held row was forgotten")
	}
}

func TestWaitingRowStaysPending(t *testing.T) {
	s := &store{rows: map[string]int{}}
	ready := false
	tab := newTable(s, func(o *delta.Options[string, int]) { o.Wait = func(k string) bool { return k == "child" && !ready } })
	tab.SetDesired("child", 1)
	tab.SetDesired("other", 1)
	if out := tab.ApplyUpdates(t.Context(), all); out.Adds != 1 || tab.Counts().Updates != 1 {
		t.Errorf("outcome %+v, want one written and one waiting", out)
	}
	ready = true
	if out := tab.ApplyUpdates(t.Context(), all); out.Adds != 1 {
		t.Errorf("outcome %+v after the wait", out)
	}
}

func TestBatchesAreBounded(t *testing.T) {
	s := &store{rows: map[string]int{}}
	tab := newTable(s, func(o *delta.Options[string, int]) { o.Batch = 4 })
	for i := range 10 {
		tab.SetDesired(fmt.Sprint(i), i)
	}
	tab.ApplyUpdates(t.Context(), all)
	if diff := gocmp.Diff([]int{4, 4, 2}, s.writes); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

// BenchmarkOneChange shows that the cost of one change does not grow with the
// rows in place: the figures of the sizes stand side by side.
func BenchmarkOneChange(b *testing.B) {
	for _, n := range []int{100, 10_000, 200_000} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			s := &store{rows: map[string]int{}}
			tab := newTable(s, nil)
			for i := range n {
				tab.SetDesired(fmt.Sprint(i), 0)
			}
			tab.ApplyUpdates(b.Context(), all)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tab.SetDesired("7", i+1)
				s.writes = s.writes[:0]
				if out := tab.ApplyUpdates(b.Context(), all); out.Updates != 1 {
					b.Fatal(out)
				}
			}
		})
	}
}

// TestGivenUpRowIsSeenWithoutItsMark checks that a row that is to be deleted stays pending when nothing tells any more whose
// it is, until it is gone.
func TestGivenUpRowIsSeenWithoutItsMark(t *testing.T) {
	s := &store{rows: map[string]int{}, fail: map[string]error{}}
	owned := true
	tab := newTable(s, func(o *delta.Options[string, int]) { o.Owned = func(string) bool { return owned } })
	tab.SetDesired("a", 1)
	tab.ApplyUpdates(t.Context(), all)
	tab.DeleteDesired("a")
	owned = false
	if _, err := tab.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := tab.ApplyDeletes(t.Context(), all); out.Deletes != 1 || len(s.rows) != 0 {
		t.Errorf("outcome %+v, and the store has %v, want the row deleted", out, s.rows)
	}
}
