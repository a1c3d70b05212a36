package agent_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// A drain ends although nothing changes any more.
func TestApplyWhenDue(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		m.locked(func() {
			m.due = time.Now().Add(20 * time.Second)
			m.drains = dataplane.Drains{Now: 3}
		})
		w.SetState(model.FromFile, source.Complete)
		w.after(10 * time.Second)
		if d := w.seen.drains.Load(); d == nil || d.Now != 3 {
			t.Errorf("the observer was told %+v", d)
		}
		if got := w.after(5 * time.Second); len(got) != 0 {
			t.Errorf("before it is due: %v", got)
		}
		if diff := cmp.Diff([]string{"apply"}, w.after(6*time.Second)); diff != "" {
			t.Errorf("when it is due (-want +got):\n%s", diff)
		}
		if got := w.after(8 * time.Second); len(got) != 0 {
			t.Errorf("when nothing is due any more: %v", got)
		}
	})
}
