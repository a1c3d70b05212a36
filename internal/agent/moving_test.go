package agent_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Readers are told of what is not in place and of what moves, as much as they ask for.
func TestPendingAndMoving(t *testing.T) {
	m := newMode()
	m.applyErr = errors.New("no memory")
	m.drains = dataplane.Drains{Now: 3, Climbing: 2}
	run(t, m, func(w *world) {
		for name, vip := range map[string]string{"a": "10.96.0.1", "b": "10.96.0.2", "c": "10.96.0.3"} {
			w.SetService(service(name, vip))
		}
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		pending, err := w.loop.Pending(w.Context(), 2)
		if err != nil || len(pending) != 1 || len(pending[0].Rows) != 2 || pending[0].More != 1 || !pending[0].Rows[0].Failed {
			w.Errorf("pending %+v, error %v", pending, err)
		}
		moving, err := w.loop.Moving(w.Context(), dataplane.MovingList{Most: 1, To: func(to netip.AddrPort) bool { return to == climbing }})
		if err != nil || len(moving.Rows) != 1 || !moving.Rows[0].Climbs || moving.More != 1 {
			w.Errorf("moving %+v, error %v", moving, err)
		}
		over, cancel := context.WithCancel(w.Context())
		cancel()
		if _, err := w.loop.Pending(over, 1); err == nil {
			w.Error("pending rows of a loop that was not asked")
		}
		if _, err := w.loop.Moving(over, dataplane.MovingList{}); err == nil {
			w.Error("what moves, of a loop that was not asked")
		}
	})
}
