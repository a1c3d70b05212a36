package agent_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// eventSink records the Events that it receives.
type eventSink struct {
	mu    sync.Mutex
	lines []string
}

func (h *eventSink) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
}

func (h *eventSink) Unbound(id model.ServiceID, list []netip.Addr, holder func(netip.Addr) string) {
	for _, a := range list {
		h.add("%s unbound %s of %s", id, a, holder(a))
	}
}
func (h *eventSink) Refused(id model.ServiceID, list []netip.Addr) { h.add("%s refused %v", id, list) }
func (h *eventSink) TooMany(id model.ServiceID, beyond model.Beyond) {
	h.add("%s has %d frontends and %d source ranges too many", id, beyond.Frontends, beyond.SourceRanges)
}
func (h *eventSink) Lost(id model.ServiceID, list []dataplane.Conflict) {
	h.add("%s lost %v", id, list)
}
func (h *eventSink) BadAnnotations(id model.ServiceID, list []string) { h.add("%s bad %v", id, list) }
func (h *eventSink) BadNode(list []string)                            { h.add("node bad %v", list) }

func (h *eventSink) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.lines
	h.lines = nil
	return out
}

// An Event is sent once for each time that its reason begins.
func TestOwnersAreTold(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.settings.ExternalIPs = plan.ExternalIPs{Allowed: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}
		w.host.set("198.51.100.7")
		s := service("a", "10.96.0.1")
		s.ExternalIPs = []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.1")}
		w.SetService(s)
		w.SetState(model.FromFile, source.Complete)
		told := func(want ...string) {
			w.Helper()
			w.after(time.Second)
			if diff := cmp.Diff(want, w.events.take()); diff != "" {
				w.Errorf("told (-want +got):\n%s", diff)
			}
		}
		told("default/a unbound 198.51.100.7 of an address of this node, on link eth0", "default/a refused [203.0.113.1]")
		s.Affinity = time.Minute
		w.SetService(s)
		told()
		s.ExternalIPs = nil
		w.SetService(s)
		told()
		s.ExternalIPs = []netip.Addr{netip.MustParseAddr("203.0.113.1")}
		w.SetService(s)
		told("default/a refused [203.0.113.1]")
		s.ExternalIPs = append(s.ExternalIPs, netip.MustParseAddr("203.0.113.2"))
		w.SetService(s)
		told("default/a refused [203.0.113.1 203.0.113.2]")
		other := service("b", "10.96.0.1")
		key := model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}
		w.mode.locked(func() {
			w.mode.conflicts = []dataplane.Conflict{{Key: key, Winner: s.ID, Loser: other.ID}, {Key: key, Loser: s.ID, Over: true}}
		})
		w.SetService(other)
		told("default/b lost [" + dataplane.Conflict{Key: key, Winner: s.ID, Loser: other.ID}.String() + "]")
	})
}

func TestNoLocalIsCounted(t *testing.T) {
	run(t, newMode(), func(w *world) {
		s := service("a", "10.96.0.1")
		s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr("fd00::1"))
		s.InternalLocal, s.ExternalLocal = true, true
		s.ExternalIPs = []netip.Addr{netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("198.51.100.10")}
		w.SetService(s)
		w.SetSlice(model.Slice{ID: model.SliceID{Origin: model.FromFile, Namespace: "default", Name: "a-1"}, Service: s.ID, Family: model.IPv4,
			Ports:     []model.SlicePort{{Protocol: model.TCP, Port: 80}},
			Endpoints: []model.Endpoint{{Addr: netip.MustParseAddr("10.244.9.9"), Node: "node-b", Ready: true, Serving: true}}})
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		c := w.seen.counts.Load()
		if want := (agent.NoLocal{Internal: 1, External: 1}); c.NoLocal4 != want || c.NoLocal6 != (agent.NoLocal{}) {
			w.Errorf("counts %+v", c)
		}
		w.DeleteService(s.ID)
		w.after(time.Second)
		if c := w.seen.counts.Load(); c.NoLocal4 != (agent.NoLocal{}) {
			w.Errorf("counts %+v", c)
		}
	})
}

// A Service with annotations that are not followed counts once, served or not, until they
// are right or it is gone.
func TestRefusedAnnotationsAreCounted(t *testing.T) {
	run(t, newMode(), func(w *world) {
		want := func(when string, n int) {
			w.Helper()
			w.after(time.Second)
			if c := w.seen.counts.Load(); c.RefusedAnnotations != n {
				w.Errorf("%s: counts %+v, want %d with annotations that are not followed", when, c, n)
			}
			if st, err := w.loop.Status(w.Context()); err != nil || st.RefusedAnnotations != n {
				w.Errorf("%s: status %+v, error %v", when, st, err)
			}
		}
		good, bad, skipped := service("good", "10.96.0.1"), service("bad", "10.96.0.2"), service("skipped", "10.96.0.3")
		bad.BadAnnotations = []string{"weight: heavy", "drain: forever"}
		skipped.ClusterIPs, skipped.BadAnnotations = nil, []string{"weight: heavy"}
		for _, s := range []model.Service{good, bad, skipped} {
			w.SetService(s)
		}
		w.SetState(model.FromFile, source.Complete)
		want("at first", 2)
		bad.BadAnnotations = bad.BadAnnotations[:1]
		w.SetService(bad)
		want("one put right of two", 2)
		bad.BadAnnotations = nil
		w.SetService(bad)
		want("both put right", 1)
		w.DeleteService(skipped.ID)
		want("deleted", 0)
	})
}
