package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// schedulers lists the algorithms of all frontends.
func (m *mode) schedulers() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, p := range m.plans {
		for _, f := range p.Frontends {
			out = append(out, f.Scheduler.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestReconfigure(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		w.SetService(service("a", "10.96.0.1"))
		w.SetService(service("b", "10.96.0.2"))
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		wlc := func(context.Context) error { w.settings.Scheduler = scheduler.MustParse("wlc"); return nil }
		if err := w.loop.Reconfigure(w.Context(), wlc); err != nil {
			w.Fatal(err)
		}
		w.want(time.Second, "host", "apply")
		if got := m.schedulers(); !slices.Equal(got, []string{"wlc"}) {
			w.Errorf("schedulers %v", got)
		}
		bad := errors.New("no")
		if err := w.loop.Reconfigure(w.Context(), func(context.Context) error { return bad }); !errors.Is(err, bad) {
			w.Errorf("error %v", err)
		}
		w.want(time.Second)
	})
}

// A setting may change where health-check ports listen although the addresses of NodePorts stay the same.
func TestReconfigureTellsWhereNodePortsAnswer(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.host.set("192.0.2.1")
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.health.told()
		if err := w.loop.Reconfigure(w.Context(), func(context.Context) error { return nil }); err != nil {
			w.Fatal(err)
		}
		if got := w.health.told(); got != "listen [192.0.2.1]" {
			w.Errorf("told %q", got)
		}
	})
}

// Settings that come before the sources are in sync are those of the first sync.
func TestReconfigureBeforeTheFirstSync(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		w.SetService(service("a", "10.96.0.1"))
		if err := w.loop.Reconfigure(w.Context(), func(context.Context) error { w.settings.Scheduler = scheduler.MustParse("sed"); return nil }); err != nil {
			w.Fatal(err)
		}
		w.want(time.Second, "host")
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		if got := m.schedulers(); !slices.Equal(got, []string{"sed"}) {
			w.Errorf("schedulers %v", got)
		}
	})
}
