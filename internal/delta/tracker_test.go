package delta_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// all is the pass that writes whatever is pending.
var all = delta.Pass{Orphans: true, Retry: true}

func intEqual(a, b int) bool { return a == b }

func newTracker() *delta.Tracker[string, int] { return delta.NewTracker[string](intEqual) }

// pending prints what a tracker would write, updates first.
func pending(t *delta.Tracker[string, int]) []string {
	var out []string
	for _, c := range t.Updates(cmp.Compare, all) {
		out = append(out, fmt.Sprintf("%s %s=%d", c.Op, c.Key, c.Value))
	}
	for _, c := range t.Deletes(cmp.Compare, all) {
		out = append(out, fmt.Sprintf("%s %s", c.Op, c.Key))
	}
	return out
}

func TestPending(t *testing.T) {
	add := delta.Change[string, int]{Op: delta.Add, Key: "a", Value: 1}
	del := delta.Change[string, int]{Op: delta.Delete, Key: "a"}
	for _, tt := range []struct {
		name string
		do   func(*delta.Tracker[string, int])
		want []string
	}{
		{"nothing", func(*delta.Tracker[string, int]) {}, nil},
		{"desired and missing is added", func(tr *delta.Tracker[string, int]) { tr.SetDesired("a", 1) }, []string{"add a=1"}},
		{"desired and equal is in place", func(tr *delta.Tracker[string, int]) {
			tr.SetDesired("a", 1)
			tr.SetActual("a", 1)
		}, nil},
		{"actual first is the same", func(tr *delta.Tracker[string, int]) {
			tr.SetActual("a", 1)
			tr.SetDesired("a", 1)
		}, nil},
		{"desired and different is updated", func(tr *delta.Tracker[string, int]) {
			tr.SetActual("a", 1)
			tr.SetDesired("a", 2)
		}, []string{"update a=2"}},
		{"a change back cancels itself", func(tr *delta.Tracker[string, int]) {
			tr.SetDesired("a", 1)
			tr.Applied(add)
			tr.SetDesired("a", 2)
			tr.SetDesired("a", 1)
		}, nil},
		{"not desired any more is deleted", func(tr *delta.Tracker[string, int]) {
			tr.SetDesired("a", 1)
			tr.Applied(add)
			tr.DeleteDesired("a")
		}, []string{"delete a"}},
		{"deleted and wanted again is in place", func(tr *delta.Tracker[string, int]) {
			tr.SetDesired("a", 1)
			tr.Applied(add)
			tr.DeleteDesired("a")
			tr.SetDesired("a", 1)
		}, nil},
		{"never written and given up is nothing", func(tr *delta.Tracker[string, int]) {
			tr.SetDesired("a", 1)
			tr.DeleteDesired("a")
		}, nil},
		{"seen missing is added again", func(tr *delta.Tracker[string, int]) {
			tr.SetDesired("a", 1)
			tr.Applied(add)
			tr.DropActual("a")
		}, []string{"add a=1"}},
		{"a failed add that is given up is deleted to be sure", func(tr *delta.Tracker[string, int]) {
			tr.SetDesired("a", 1)
			tr.Failed(add)
			tr.DeleteDesired("a")
		}, []string{"delete a"}},
		{"a failed update is added to be sure", func(tr *delta.Tracker[string, int]) {
			tr.SetActual("a", 1)
			tr.SetDesired("a", 2)
			tr.Failed(delta.Change[string, int]{Op: delta.Update, Key: "a", Value: 2})
			tr.SetDesired("a", 1)
		}, []string{"add a=1"}},
		{"a failed delete that is wanted again is added to be sure", func(tr *delta.Tracker[string, int]) {
			tr.SetActual("a", 1)
			tr.Failed(del)
			tr.SetDesired("a", 1)
		}, []string{"add a=1"}},
		{"a failed delete stays pending", func(tr *delta.Tracker[string, int]) {
			tr.SetActual("a", 1)
			tr.Failed(del)
		}, []string{"delete a"}},
		{"updates ascend, deletes descend", func(tr *delta.Tracker[string, int]) {
			for _, k := range []string{"c", "a", "b"} {
				tr.SetDesired(k, 1)
				tr.SetActual("old-"+k, 1)
			}
		}, []string{"add a=1", "add b=1", "add c=1", "delete old-c", "delete old-b", "delete old-a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTracker()
			tt.do(tr)
			if diff := gocmp.Diff(tt.want, pending(tr)); diff != "" {
				t.Errorf("pending (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailedRowsRest(t *testing.T) {
	tr := newTracker()
	count := func(p delta.Pass) int { return len(tr.Updates(cmp.Compare, p)) + len(tr.Deletes(cmp.Compare, p)) }
	tr.SetDesired("add", 1)
	tr.SetActual("orphan", 1)
	tr.SetActual("given up", 1)
	tr.SetDesired("given up", 1)
	tr.DeleteDesired("given up")
	for _, c := range append(tr.Updates(cmp.Compare, all), tr.Deletes(cmp.Compare, all)...) {
		tr.Failed(c)
	}
	if n, retried := count(delta.Pass{Orphans: true}), count(all); n != 0 || retried != 3 {
		t.Errorf("%d rows in an ordinary pass, want 0; %d in one that retries, want 3", n, retried)
	}
	tr.SetDesired("add", 1)
	if n := count(delta.Pass{}); n != 0 {
		t.Errorf("wanting the same again woke %d rows", n)
	}
	tr.SetDesired("add", 2)
	if n := count(delta.Pass{}); n != 1 {
		t.Errorf("wanting something else woke %d rows, want 1", n)
	}
}

func TestOrphans(t *testing.T) {
	tr := newTracker()
	tr.SetActual("found", 1)
	tr.SetActual("given up", 1)
	tr.SetDesired("given up", 1)
	tr.DeleteDesired("given up")
	if got := tr.Counts(); got.Orphans != 1 || got.Deletes != 2 {
		t.Fatalf("counts %+v, want one orphan of two deletes", got)
	}
	sure := tr.Deletes(cmp.Compare, delta.Pass{Retry: true})
	if len(sure) != 1 || sure[0].Key != "given up" {
		t.Errorf("without orphans: %v, want only what an input gave up", sure)
	}
	tr.SetActual("given up", 2)
	if got := tr.Counts().Orphans; got != 1 {
		t.Errorf("a re-read made %d orphans, want 1: the row was given up, not found", got)
	}
	tr.SetDesired("found", 1)
	if got := tr.Counts(); got.Orphans != 0 || got.Pending() != 1 {
		t.Errorf("counts %+v after adoption, want no orphan and one delete", got)
	}
}

func TestLoadCountsDrift(t *testing.T) {
	tr := newTracker()
	for k, v := range map[string]int{"same": 1, "changed": 1, "lost": 1} {
		tr.SetDesired(k, v)
		tr.SetActual(k, v)
	}
	drift := tr.Load(map[string]int{"same": 1, "changed": 9, "new": 1})
	if drift != 3 {
		t.Errorf("drift %d, want 3: changed, lost, new", drift)
	}
	want := []string{"update changed=1", "add lost=1", "delete new"}
	if diff := gocmp.Diff(want, pending(tr)); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
	if drift := tr.Load(map[string]int{"same": 1, "changed": 9, "new": 1}); drift != 0 {
		t.Errorf("the same again drifted by %d", drift)
	}
}

// naive is the obvious model: two maps, and which rows a failed write left in
// an unknown state.
type naive struct {
	desired, actual map[string]int
	unknown         map[string]bool
}

// check compares what the tracker would do with what the model requires to be
// done, given that an unknown row has to be written whatever it holds.
func (n naive) check(t *testing.T, tr *delta.Tracker[string, int]) {
	t.Helper()
	want := map[string]string{}
	for k, v := range n.desired {
		have, ok := n.actual[k]
		switch {
		case n.unknown[k] || !ok:
			want[k] = fmt.Sprintf("add %d", v)
		case have != v:
			want[k] = fmt.Sprintf("update %d", v)
		}
	}
	for k := range n.actual {
		if _, ok := n.desired[k]; !ok {
			want[k] = "delete"
		}
	}
	for k := range n.unknown {
		if _, ok := n.desired[k]; !ok {
			want[k] = "delete"
		}
	}
	got := map[string]string{}
	for _, c := range tr.Updates(cmp.Compare, all) {
		got[c.Key] = fmt.Sprintf("%s %d", c.Op, c.Value)
	}
	for _, c := range tr.Deletes(cmp.Compare, all) {
		if _, twice := got[c.Key]; twice {
			t.Fatalf("%s is to be updated and deleted", c.Key)
		}
		got[c.Key] = "delete"
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("pending (-naive +tracker):\n%s", diff)
	}
	if diff := gocmp.Diff(n.desired, maps.Collect(tr.AllDesired())); diff != "" {
		t.Fatalf("desired (-naive +tracker):\n%s", diff)
	}
	if c := tr.Counts(); c.Pending() != len(want) || c.Orphans > c.Deletes || c.Orphans < 0 {
		t.Fatalf("counts %+v, want %d pending", c, len(want))
	}
}

// FuzzTracker reads each pair of bytes as an operation on one of eight keys and compares the
// tracker with the naive model after each operation. It does the same for a tracker that packs its
// keys.
func FuzzTracker(f *testing.F) {
	f.Add([]byte{0, 1, 8, 1, 16, 1, 24, 2, 32, 1, 40, 0})
	f.Add([]byte{0, 0, 40, 0, 48, 0, 8, 0, 56, 0, 0, 3})
	f.Add([]byte{0, 0, 5, 1, 32, 0, 13, 0, 8, 0, 32, 0, 21, 1, 48, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		for _, tr := range []*delta.Tracker[string, int]{newTracker(), delta.NewPackedTracker(intEqual, halfPacked)} {
			n := naive{map[string]int{}, map[string]int{}, map[string]bool{}}
			for rest := ops; len(rest) >= 2; rest = rest[2:] {
				step(tr, &n, rest[0]>>3, string('a'+rune(rest[0]&7)), int(rest[1]%3))
				n.check(t, tr)
			}
		}
	})
}

// halfPacked has a small form for a to d, and none for e to h.
var halfPacked = delta.KeyCodec[string]{
	Pack:   func(k string) (delta.PackedKey, bool) { return delta.PackedKey{k[0]}, k < "e" },
	Unpack: func(p delta.PackedKey) string { return string(rune(p[0])) },
}

// step performs one operation on both.
func step(tr *delta.Tracker[string, int], n *naive, op byte, k string, v int) {
	switch op % 7 {
	case 0:
		tr.SetDesired(k, v)
		n.desired[k] = v
	case 1:
		tr.DeleteDesired(k)
		delete(n.desired, k)
	case 2:
		tr.SetActual(k, v)
		n.actual[k] = v
		delete(n.unknown, k)
	case 3:
		tr.DropActual(k)
		delete(n.actual, k)
		delete(n.unknown, k)
	case 4:
		n.writeAll(tr, func(delta.Change[string, int]) bool { return true })
	case 5:
		n.writeAll(tr, func(c delta.Change[string, int]) bool { return c.Key != k })
	case 6:
		read := maps.Clone(n.actual)
		tr.Load(read)
		clear(n.unknown)
		// A row of unknown state that the read did not show is absent.
	}
}

// writeAll carries out everything pending; a row that ok refuses fails and is unknown
// from then on.
func (n *naive) writeAll(tr *delta.Tracker[string, int], ok func(delta.Change[string, int]) bool) {
	changes := slices.Concat(tr.Updates(cmp.Compare, all), tr.Deletes(cmp.Compare, all))
	for _, c := range changes {
		if !ok(c) {
			tr.Failed(c)
			n.unknown[c.Key] = true
			continue
		}
		tr.Applied(c)
		delete(n.unknown, c.Key)
		if c.Op == delta.Delete {
			delete(n.actual, c.Key)
		} else {
			n.actual[c.Key] = c.Value
		}
	}
}
