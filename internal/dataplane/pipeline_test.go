package dataplane_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// stage notes in a shared journal when it was asked for what.
type stage struct {
	name    string
	journal *[]string
	fail    bool
	counts  delta.Counts
}

func (s *stage) Name() string         { return s.name }
func (s *stage) Counts() delta.Counts { return s.counts }
func (s *stage) note(what string)     { *s.journal = append(*s.journal, what+" "+s.name) }

func (s *stage) ApplyUpdates(context.Context, delta.Pass) delta.Outcome {
	s.note("update")
	if s.fail {
		return delta.Failures(1, errors.New("broken"))
	}
	return delta.Outcome{Adds: 1}
}

func (s *stage) ApplyDeletes(_ context.Context, p delta.Pass) delta.Outcome {
	if p.Orphans {
		s.note("delete with orphans")
	} else {
		s.note("delete")
	}
	return delta.Outcome{}
}

// three returns a pipeline base -> middle -> top and its journal.
func three(change func(base, middle, top *stage)) (*dataplane.Pipeline, *[]string) {
	var journal []string
	base, middle, top := &stage{name: "base", journal: &journal}, &stage{name: "middle", journal: &journal}, &stage{name: "top", journal: &journal}
	if change != nil {
		change(base, middle, top)
	}
	return dataplane.NewPipeline(base, middle, top), &journal
}

func TestUpdatesRunDownAndDeletionsUp(t *testing.T) {
	p, journal := three(nil)
	r := p.Apply(t.Context(), dataplane.ApplyOptions{})
	want := []string{
		"update base", "update middle", "update top",
		"delete with orphans top", "delete with orphans middle", "delete with orphans base",
	}
	if diff := cmp.Diff(want, *journal); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if got := r.Total(); got.Adds != 3 {
		t.Errorf("total %+v, want 3 adds", got)
	}
}

func TestKeptOrphansAreNotDeleted(t *testing.T) {
	p, journal := three(nil)
	p.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true})
	want := []string{"update base", "update middle", "update top", "delete top", "delete middle", "delete base"}
	if diff := cmp.Diff(want, *journal); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestFailedRowStopsNothing(t *testing.T) {
	p, journal := three(func(_, middle, _ *stage) { middle.fail = true })
	r := p.Apply(t.Context(), dataplane.ApplyOptions{})
	if len(*journal) != 6 || r.Total().Failed != 1 {
		t.Errorf("journal %v, result %+v", *journal, r)
	}
}

func TestKeptOrphansAreNotPending(t *testing.T) {
	for name, tt := range map[string]struct {
		counts    delta.Counts
		kept, all int
	}{
		"beside other rows": {delta.Counts{Desired: 9, Updates: 1, Deletes: 5, Orphans: 4}, 2, 6},
		"orphans alone":     {delta.Counts{Desired: 9, Deletes: 4, Orphans: 4}, 0, 4},
	} {
		p, _ := three(func(_, _, top *stage) { top.counts = tt.counts })
		if got := p.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true}).Pending; got != tt.kept {
			t.Errorf("%s: %d pending with orphans kept, want %d", name, got, tt.kept)
		}
		if got := p.Apply(t.Context(), dataplane.ApplyOptions{}).Pending; got != tt.all {
			t.Errorf("%s: %d pending, want %d", name, got, tt.all)
		}
	}
}

func TestTwoStagesOfOneNameAreABrokenBuild(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	var journal []string
	s := &stage{name: "same", journal: &journal}
	dataplane.NewPipeline(s, s)
}

// publisher is a stage that puts rows in place in two steps.
type publisher struct{ *stage }

func (p publisher) Publish(context.Context, delta.Pass) delta.Outcome {
	p.note("publish")
	return delta.Outcome{Updates: 2}
}

// Rows of a stage are published after the next stage's updates, regardless of the result of these,
// and count as rows of their own stage.
func TestPublishingFollowsTheNextStage(t *testing.T) {
	var journal []string
	named := func(name string) *stage { return &stage{name: name, journal: &journal} }
	middle := named("middle")
	middle.fail = true
	r := dataplane.NewPipeline(publisher{named("base")}, middle, named("top")).Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true})
	want := []string{"update base", "update middle", "publish base", "update top", "delete top", "delete middle", "delete base"}
	if diff := cmp.Diff(want, journal); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if base := r.Stages[0]; base.Stage != "base" || base.Adds != 1 || base.Updates != 2 {
		t.Errorf("first stage %+v, want one row added and two updated", base)
	}
}
