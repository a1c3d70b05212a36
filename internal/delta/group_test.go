package delta_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// TestGroupWritesOnceForBoth: each walk of a pass is one write, and each stage has the outcome of
// its own rows.
func TestGroupWritesOnceForBoth(t *testing.T) {
	lower := delta.NewTable[string, int](nil, delta.Options[string, int]{Name: "chains", Equal: func(a, b int) bool { return a == b }})
	upper := delta.NewTable[string, int](nil, delta.Options[string, int]{Name: "entries", Equal: func(a, b int) bool { return a == b }})
	lower.SetDesired("a", 1)
	upper.SetDesired("b", 2)
	upper.SetDesired("c", 3)
	var walks []bool
	refused := errors.New("refused")
	g := delta.NewGroup(lower, upper, func(_ context.Context, p delta.Pass, deletes bool) [2]delta.Outcome {
		walks = append(walks, deletes)
		if deletes {
			return [2]delta.Outcome{}
		}
		compare := func(a, b string) int { return slices.Compare([]byte(a), []byte(b)) }
		return [2]delta.Outcome{
			lower.Record(lower.Updates(compare, p), nil),
			upper.Record(upper.Updates(compare, p), []error{nil, refused}),
		}
	})
	stages := []delta.GroupStage{g.Lower(), g.Upper()}
	var adds, failed [2]int
	for i, s := range stages {
		out := s.ApplyUpdates(t.Context(), delta.Pass{})
		adds[i], failed[i] = out.Adds, out.Failed
	}
	for _, s := range slices.Backward(stages) {
		if out := s.ApplyDeletes(t.Context(), delta.Pass{}); out.Written()+out.Failed != 0 {
			t.Errorf("%s: %d rows count twice", s.Name(), out.Written()+out.Failed)
		}
	}
	if adds != [2]int{1, 1} || failed != [2]int{0, 1} || !slices.Equal(walks, []bool{false, true}) {
		t.Errorf("adds %v, failed %v, walks %v", adds, failed, walks)
	}
	if stages[0].Name() != "chains" || stages[1].Counts().Updates != 1 {
		t.Errorf("stage %s, %+v", stages[0].Name(), stages[1].Counts())
	}
}
