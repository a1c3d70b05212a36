package agent_test

import (
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

var _ interface {
	dataplane.Inspectable
	dataplane.Bootstrapper
	dataplane.Auditor
	dataplane.Timed
	dataplane.Drainer
} = (*mode)(nil)

// A mode without optional parts serves Services; an audit of it ends at once, and its rows cannot be shown.
func TestModeWithoutOptionalParts(t *testing.T) {
	m := newMode()
	m.hasBase, m.drains = true, dataplane.Drains{Now: 3}
	runOn(t, m, struct{ dataplane.Dataplane }{m}, func(w *world) {
		w.want(time.Second)
		w.SetService(service("a", "10.96.0.1"))
		w.SetState(model.FromFile, source.Complete)
		w.want(2*agent.DefaultAuditPeriod, "start", "load", "apply")
		s, err := w.loop.Status(w.Context())
		if err != nil || !s.Ready || s.Services != 1 || s.Draining != 0 || s.Audits == 0 {
			t.Errorf("status %+v, error %v", s, err)
		}
		if _, err := w.loop.Explain(w.Context(), agent.Query{Service: "default/a"}); err == nil {
			t.Error("rows are explained of a mode that cannot show them")
		}
		if _, err := w.loop.Rows(w.Context(), "servers"); err == nil {
			t.Error("rows are printed of a mode that cannot show them")
		}
		if moving, err := w.loop.Moving(w.Context(), dataplane.MovingList{Most: 10}); err != nil || len(moving.Rows) != 0 {
			t.Errorf("moving %+v, error %v", moving, err)
		}
	})
}
