package delta_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// A reader is told of each pending row once, with what is known of it, and of no more than it asked for.
func TestPendingRows(t *testing.T) {
	tr := newTracker()
	tr.SetDesired("new", 1)
	tr.SetActual("different", 1)
	tr.SetDesired("different", 2)
	tr.SetDesired("given-up", 3)
	tr.SetActual("given-up", 3)
	tr.DeleteDesired("given-up")
	tr.SetActual("orphan", 4)
	tr.SetDesired("refused", 5)
	tr.Failed(delta.Change[string, int]{Op: delta.Add, Key: "refused", Value: 5})
	tr.SetDesired("in-place", 6)
	tr.SetActual("in-place", 6)
	rows, more := tr.PendingRows(100)
	slices.SortFunc(rows, func(a, b delta.PendingRow[string, int]) int { return cmp.Compare(a.Key, b.Key) })
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprintf("%s %s=%d resting=%t orphan=%t", r.Op, r.Key, r.Value, r.Resting, r.Orphan))
	}
	want := []string{
		"update different=2 resting=false orphan=false",
		"delete given-up=3 resting=false orphan=false",
		"add new=1 resting=false orphan=false",
		"delete orphan=4 resting=false orphan=true",
		"add refused=5 resting=true orphan=false",
	}
	if diff := gocmp.Diff(want, got); diff != "" || more != 0 {
		t.Errorf("%d more, rows (-want +got):\n%s", more, diff)
	}
	for most := range 7 {
		rows, more := tr.PendingRows(most)
		if len(rows) != min(most, 5) || len(rows)+more != 5 {
			t.Errorf("of 5 rows %d at most: %d and %d more", most, len(rows), more)
		}
	}
}
