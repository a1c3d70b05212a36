package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

func (w *world) wantSchedulers(want map[string]string) {
	w.Helper()
	got := map[string]string{}
	w.mode.locked(func() {
		for id, p := range w.mode.plans {
			got[id.Name] = p.Frontends[0].Scheduler.Name()
		}
		clear(w.mode.plans)
	})
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("compiled (-want +got):\n%s", diff)
	}
}

func scheduled(name, vip, algorithm string) model.Service {
	s := service(name, vip)
	s.Policy = &model.Policy{Scheduler: scheduler.MustParse(algorithm)}
	return s
}

// A scheduler that the kernel lacks costs the Services that ask for it their choice and
// nothing else; they get it when the module appears.
func TestSchedulerIsTriedBeforeItIsUsed(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.lacks.Store("mh", errors.New("no module"))
		w.SetService(service("plain", "10.96.0.1"))
		w.SetService(scheduled("maglev", "10.96.0.2", "mh"))
		w.SetService(scheduled("least", "10.96.0.3", "wlc"))
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.wantSchedulers(map[string]string{"plain": "rr", "maglev": "rr", "least": "wlc"})
		want := []string{"default/maglev bad [metadata.annotations[kube-ipvs.io/scheduler]: mh (mh-fallback,mh-port) is not available on this node (no module): rr is used]"}
		if diff := cmp.Diff(want, w.events.take()); diff != "" {
			w.Errorf("told (-want +got):\n%s", diff)
		}

		w.after(time.Minute) // it is asked for again, and nothing is new
		w.wantSchedulers(map[string]string{})
		w.SetService(scheduled("another", "10.96.0.4", "mh"))
		w.after(time.Second)
		w.wantSchedulers(map[string]string{"another": "rr"})
		w.events.take()

		w.lacks.Delete("mh")
		w.after(time.Minute)
		w.wantSchedulers(map[string]string{"maglev": "mh", "another": "mh"})
		if told := w.events.take(); told != nil {
			w.Errorf("told %q of what is well again", told)
		}
	})
}

// A kernel that does not answer costs one deadline in each round of probes. The skipped probes count as
// unanswered, too.
func TestKernelWithoutAnAnswerIsAskedOnce(t *testing.T) {
	run(t, newMode(), func(w *world) {
		wanted := map[string]string{"a": "mh", "b": "wlc", "c": "sh", "tunnel": "sed"}
		silent := fmt.Errorf("probe: %w", context.DeadlineExceeded)
		for _, name := range []string{"mh", "wlc", "sh", "sed", "gue"} {
			w.lacks.Store(name, silent)
		}
		for i, name := range []string{"a", "b", "c", "tunnel"} {
			s := scheduled(name, fmt.Sprintf("10.96.0.%d", i+1), wanted[name])
			if name == "tunnel" {
				s.Policy.Forward, s.Policy.GUE = model.ForwardTunnel, 5555
			}
			w.SetService(s)
		}
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.wantSchedulers(map[string]string{"a": "rr", "b": "rr", "c": "rr", "tunnel": "rr"})
		if n := w.asked.Swap(0); n != 1 {
			w.Errorf("%d questions to a kernel that does not answer, want 1", n)
		}
		w.after(40 * time.Second) // the next round
		w.mode.locked(func() { clear(w.mode.plans) })
		if n := w.asked.Swap(0); n != 1 {
			w.Errorf("%d questions in the next round, want 1", n)
		}
		w.lacks.Clear()
		w.after(time.Minute)
		w.wantSchedulers(wanted)
		if n := w.asked.Load(); n != 5 {
			w.Errorf("%d questions to a kernel that answers again, want one for each of 4 schedulers and the tunnel", n)
		}
	})
}

// So it is with a tunnel.
func TestTunnelIsTriedBeforeItIsUsed(t *testing.T) {
	run(t, newMode(), func(w *world) {
		ways := func() (got []string) {
			w.mode.locked(func() {
				for _, p := range w.mode.plans {
					for _, f := range p.Frontends[1:] {
						got = append(got, fmt.Sprintf("%s %s %d", f.Key.Addr, f.Forward, f.GUE))
					}
				}
				clear(w.mode.plans)
			})
			return got
		}
		w.lacks.Store("gue", errors.New("an old kernel"))
		s := service("direct", "10.96.0.1")
		s.ExternalIPs = []netip.Addr{netip.MustParseAddr("203.0.113.1")}
		s.Policy = &model.Policy{Forward: model.ForwardTunnel, GUE: 5555}
		w.SetService(s)
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		if diff := cmp.Diff([]string{"203.0.113.1 nat 0"}, ways()); diff != "" {
			w.Errorf("forwarded (-want +got):\n%s", diff)
		}
		w.after(time.Minute) // it is asked for again, and nothing is new
		if got := ways(); got != nil {
			w.Errorf("compiled again: %q", got)
		}
		w.lacks.Delete("gue")
		w.after(time.Minute)
		if diff := cmp.Diff([]string{"203.0.113.1 tunnel 5555"}, ways()); diff != "" {
			w.Errorf("forwarded (-want +got):\n%s", diff)
		}
	})
}

// A weight of a Node is compiled into the Services that have endpoints there, and a bad
// one of our own is told once.
func TestWeightOfANode(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetService(service("here", "10.96.0.1"))
		w.SetService(service("there", "10.96.0.2"))
		behind := endpoints("there", 1)
		behind.Endpoints[0].Node = "node-b"
		w.SetSlice(behind)
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.planned()
		w.SetNode(model.FromFile, model.Node{Name: "node-b", Weight: new(uint16(7))})
		w.after(time.Second)
		w.mode.locked(func() {
			if len(w.mode.plans) != 1 {
				w.Errorf("%d Services compiled, want the one with an endpoint there", len(w.mode.plans))
			}
			for id, p := range w.mode.plans {
				if got := p.Frontends[0].Backends; len(got) != 1 || got[0].Weight != 7 {
					w.Errorf("%s: backends %v, want one of weight 7", id, got)
				}
			}
		})
		w.SetNode(model.FromFile, model.Node{Name: "node-a", BadAnnotations: []string{"heavy"}})
		w.after(time.Second)
		w.SetNode(model.FromFile, model.Node{Name: "node-a", Zone: "z", BadAnnotations: []string{"heavy"}})
		w.after(time.Second)
		if diff := cmp.Diff([]string{"node bad [heavy]"}, w.events.take()); diff != "" {
			w.Errorf("told (-want +got):\n%s", diff)
		}
	})
}
