package agent_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// While the sources are listed, the kernel is read. On a kernel that carries no Services, rows that
// depend on no Service are written.
func TestPrepare(t *testing.T) {
	for _, tt := range []struct {
		name          string
		mode          func(m *mode)
		wait          time.Duration // until the sources are in sync
		before, after []string
		kept          []bool
	}{
		{"a fresh node", func(*mode) {}, time.Second, []string{"start", "load", "apply"}, []string{"apply"}, []bool{true, false}},
		{"a node that carries Services", func(m *mode) { m.carries = true }, time.Second, []string{"start", "load"}, []string{"apply"}, []bool{false}},
		{"sources that take their time", func(*mode) {}, 31 * time.Second, []string{"start", "load", "apply"}, []string{"start", "load", "apply"}, []bool{true, false}},
		{"a kernel that cannot be read", func(m *mode) { m.loadErr = errors.New("interrupted") }, time.Second, []string{"start", "load"}, []string{"start", "load"}, nil},
		{"a mode without base rows", func(m *mode) { m.hasBase = false }, time.Second, nil, []string{"start", "load", "apply"}, []bool{false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMode()
			m.hasBase = true
			tt.mode(m)
			run(t, m, func(w *world) {
				w.SetService(service("a", "10.96.0.1"))
				w.want(tt.wait, tt.before...)
				w.SetState(model.FromFile, source.Complete)
				w.want(50*time.Millisecond, tt.after...)
				m.locked(func() {
					if diff := cmp.Diff(tt.kept, m.keptOrphans); diff != "" {
						w.Errorf("orphans kept (-want +got):\n%s", diff)
					}
					for i, planned := range m.planned {
						if before := i < len(m.planned)-1; before && len(planned) > 0 {
							w.Errorf("Services written before the sources were in sync: %v", planned)
						}
					}
				})
			})
		})
	}
}

// Rows that failed while the sources were asked do not wait for the next try when they are
// in sync, and nothing is said to be in order before.
func TestPrepareFails(t *testing.T) {
	m := newMode()
	m.hasBase, m.applyErr, m.dirty = true, errors.New("refused"), 1
	run(t, m, func(w *world) {
		w.want(time.Minute, "start", "load", "apply") // and no audit
		if s, err := w.loop.Status(w.Context()); err != nil || s.Ready || s.Audits != 0 || s.Failures != 0 {
			w.Errorf("status %+v, error %v", s, err)
		}
		m.locked(func() { m.applyErr = nil })
		w.SetState(model.FromFile, source.Complete)
		w.want(50*time.Millisecond, "start", "load", "apply")
		m.locked(func() {
			if !m.retried[len(m.retried)-1] {
				w.Error("the rows that failed were not tried")
			}
		})
		if s, err := w.loop.Status(w.Context()); err != nil || !s.Ready {
			w.Errorf("status %+v, error %v", s, err)
		}
	})
}
