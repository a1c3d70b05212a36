package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
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

// Where health-check ports are opened may change while the addresses of NodePorts stay
// the same, so it is told anew.
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

// Another mode gets all that the first one had, reads the kernel before it writes, is
// audited in its own time, and the first one is asked nothing any more. What cannot be made ready changes nothing.
func TestReplace(t *testing.T) {
	first, next := newMode(), newMode()
	run(t, first, func(w *world) {
		w.SetService(service("a", "10.96.0.1"))
		w.SetService(service("b", "10.96.0.2"))
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		first.locked(func() { first.journal = nil })
		bad := errors.New("no")
		if err := w.loop.Replace(w.Context(), next, agent.Periods{}, func(context.Context) error { return bad }); !errors.Is(err, bad) {
			w.Errorf("error %v", err)
		}
		if err := w.loop.Replace(w.Context(), next, agent.Periods{AuditPeriod: 3 * time.Second}, func(context.Context) error { return nil }); err != nil {
			w.Fatal(err)
		}
		w.SetService(service("c", "10.96.0.3"))
		w.after(4 * time.Second)
		next.locked(func() {
			if want := []string{"host", "start", "load", "apply", "apply", "audit"}; !slices.Equal(next.journal, want) {
				w.Errorf("the next mode was asked %v, want %v", next.journal, want)
			}
			if want := [][]string{{"a", "b"}, {"a", "b", "c"}}; !slices.EqualFunc(next.planned, want, slices.Equal) {
				w.Errorf("the next mode applied %v, want %v", next.planned, want)
			}
		})
		first.locked(func() {
			if len(first.journal) > 0 {
				w.Errorf("the first mode was asked %v", first.journal)
			}
		})
	})
}

// TestReplaceForgetsConflicts checks that conflicts of the old mode are not counted in a mode that has none.
func TestReplaceForgetsConflicts(t *testing.T) {
	first, next := newMode(), newMode()
	a := service("a", "10.96.0.1")
	first.conflicts = []dataplane.Conflict{{Key: model.FrontendKey{Addr: a.ClusterIPs[0], Port: 80, Protocol: model.TCP}, Loser: a.ID}}
	run(t, first, func(w *world) {
		w.SetService(a)
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		if s, _ := w.loop.Status(w.Context()); s.Conflicts != 1 {
			w.Errorf("%d conflicts in the first mode, want 1", s.Conflicts)
		}
		if err := w.loop.Replace(w.Context(), next, agent.Periods{}, func(context.Context) error { return nil }); err != nil {
			w.Fatal(err)
		}
		w.SetService(service("b", "10.96.0.2"))
		w.after(time.Second)
		if s, _ := w.loop.Status(w.Context()); s.Conflicts != 0 {
			w.Errorf("%d conflicts in the next mode, want 0", s.Conflicts)
		}
	})
}
