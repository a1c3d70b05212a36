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

// EachDraining implements what a mode may have.
func (m *mode) EachDraining(visit func(dataplane.Draining)) {
	visit(dataplane.Draining{Addr: netip.MustParseAddrPort("10.0.0.1:80")})
}

func TestDraining(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		list, err := w.loop.Draining(w.Context())
		if err != nil || len(list) != 1 || list[0].Addr.Port() != 80 {
			w.Errorf("draining %v, error %v", list, err)
		}
		ended, cancel := context.WithCancel(w.Context())
		cancel()
		if list, err := w.loop.Draining(ended); !errors.Is(err, context.Canceled) || list != nil {
			w.Errorf("with an ended context: %v, error %v", list, err)
		}
	})
}
