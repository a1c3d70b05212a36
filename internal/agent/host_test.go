package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// host is a machine whose addresses a test sets.
type host struct {
	mu       sync.Mutex
	links    map[netip.Addr]string
	gateways []netip.Addr
	err      error
	reads    int
}

func (h *host) Local(context.Context) (map[netip.Addr]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads++
	return maps.Clone(h.links), h.err
}

func (h *host) Gateways(context.Context) ([]netip.Addr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gateways, h.err
}

// set gives the machine other addresses without a notification.
func (h *host) set(addrs ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.links = map[netip.Addr]string{}
	for _, a := range addrs {
		h.links[netip.MustParseAddr(a)] = "eth0"
	}
}

// move puts an address on another link; the agent is not told.
func (h *host) move(addr, link string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.links = maps.Clone(h.links)
	h.links[netip.MustParseAddr(addr)] = link
}

// failing makes every reading fail, or none.
func (h *host) failing(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// readings counts those since the last call.
func (h *host) readings() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.reads
	h.reads = 0
	return n
}

// nodePort is a Service that answers on the node's own addresses too.
func nodePort(name, vip string, port uint16) model.Service {
	s := service(name, vip)
	s.Type, s.Ports[0].NodePort = "NodePort", port
	return s
}

// planned returns the names of the Services that were compiled since the last
// call, with the addresses that they are served on.
func (w *world) planned() map[string]string {
	out := map[string]string{}
	w.mode.locked(func() {
		for id, p := range w.mode.plans {
			text := []string{}
			for _, f := range p.Frontends {
				text = append(text, f.Key.String())
			}
			out[id.Name] = strings.Join(text, " ")
		}
		clear(w.mode.plans)
	})
	return out
}

func (w *world) wantPlanned(want map[string]string) {
	w.Helper()
	if diff := cmp.Diff(want, w.planned()); diff != "" {
		w.Errorf("compiled (-want +got):\n%s", diff)
	}
}

func TestNothingIsWrittenBeforeTheHostIsRead(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.host.failing(errors.New("interrupted"))
		w.SetService(nodePort("a", "10.96.0.1", 30080))
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Minute)
		if s, _ := w.loop.Status(w.Context()); s.Ready || s.Healthy || !strings.Contains(s.LastError, "interrupted") {
			w.Errorf("status %+v, want one that fails", s)
		}
		w.host.set("192.0.2.1")
		w.host.failing(nil)
		w.want(29*time.Second, "host", "start", "load", "apply")
		w.wantPlanned(map[string]string{"a": "10.96.0.1:80/tcp 192.0.2.1:30080/tcp"})
	})
}

func TestAFirstStartCompilesOnce(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.host.set("192.0.2.1")
		w.SetService(nodePort("a", "10.96.0.1", 30080))
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Second, "host", "start", "load", "apply")
		if s, _ := w.loop.Status(w.Context()); s.Last == nil || s.Last.Services != 1 || w.host.readings() != 1 {
			w.Errorf("last cycle %+v, want one Service compiled, and the host read once", s.Last)
		}
	})
}

func TestAddressesOfTheHostConcernNodePorts(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.host.set("192.0.2.1")
		for i := range 50 {
			w.SetService(service(fmt.Sprintf("plain-%d", i), fmt.Sprintf("10.96.1.%d", i)))
		}
		w.SetService(nodePort("open", "10.96.0.1", 30080))
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.planned()

		w.host.set("192.0.2.1", "192.0.2.2")
		w.loop.HostChanged()
		w.want(time.Second, "host", "apply")
		w.wantPlanned(map[string]string{"open": "10.96.0.1:80/tcp 192.0.2.1:30080/tcp 192.0.2.2:30080/tcp"})
		s, _ := w.loop.Status(w.Context())
		if got := fmt.Sprint(s.NodePorts); got != "[192.0.2.1 192.0.2.2]" || s.Last.Services != 1 {
			w.Errorf("NodePorts on %s, %d Services compiled", got, s.Last.Services)
		}

		w.loop.HostChanged() // an address was told that is there already
		w.want(time.Second)
		w.wantPlanned(map[string]string{})
	})
}

func TestABurstOfEventsIsFewReadings(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.host.readings()
		for i := range 100 {
			w.host.set(fmt.Sprintf("192.0.2.%d", i))
			w.loop.HostChanged()
			time.Sleep(2 * time.Millisecond)
		}
		w.after(time.Second)
		if n := w.host.readings(); n < 2 || n > 4 {
			w.Errorf("%d readings for 200 ms of events, want one each 100 ms", n)
		}
		w.mode.locked(func() {
			if _, last := w.mode.host.Links[netip.MustParseAddr("192.0.2.99")]; !last {
				w.Errorf("the last address was missed: %v", w.mode.host.Links)
			}
		})
	})
}

func TestAuditReadsTheHost(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		gateway := netip.MustParseAddr("192.0.2.254")
		w.host.mu.Lock()
		w.host.gateways = []netip.Addr{gateway}
		w.host.mu.Unlock()
		w.want(30*time.Second, "host", "audit", "apply")
		w.mode.locked(func() {
			if w.mode.host.Holder(gateway) == "" {
				w.Errorf("the gateway is not known: %+v", w.mode.host)
			}
		})
	})
}

// TestAuditFollowsAReplacedGateway checks that another next hop in the place of the first one is protected from Services.
func TestAuditFollowsAReplacedGateway(t *testing.T) {
	run(t, newMode(), func(w *world) {
		gateway := func(addr string) netip.Addr {
			w.host.mu.Lock()
			defer w.host.mu.Unlock()
			w.host.gateways = []netip.Addr{netip.MustParseAddr(addr)}
			return w.host.gateways[0]
		}
		old := gateway("192.0.2.254")
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		now := gateway("192.0.2.253")
		w.want(30*time.Second, "host", "audit", "apply")
		w.mode.locked(func() {
			if w.mode.host.Holder(now) == "" || w.mode.host.Holder(old) != "" {
				w.Errorf("the gateway %s is not known in the place of %s: %+v", now, old, w.mode.host)
			}
		})
	})
}

func TestHostThatCannotBeReadLaterStays(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.host.set("192.0.2.1")
		w.SetService(nodePort("a", "10.96.0.1", 30080))
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.planned()
		w.host.set()
		w.host.failing(errors.New("busy"))
		w.loop.HostChanged()
		w.want(time.Second)
		w.wantPlanned(map[string]string{})
		if n := w.logs.FilterMessageSnippet("reading the addresses of this machine failed").FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
			w.Errorf("%d warnings, want 1", n)
		}
		w.host.failing(nil)
		w.want(30*time.Second, "host", "audit", "apply")
		w.wantPlanned(map[string]string{"a": "10.96.0.1:80/tcp"})
	})
}

// An address that turns out to be this node's is given up, and taken back after. One that was another node's is not taken
// back while the Service has it: the machine may be alive.
func TestGuardUnbindsAndBinds(t *testing.T) {
	run(t, newMode(), func(w *world) {
		s := service("a", "10.96.0.1")
		s.ExternalIPs = []netip.Addr{netip.MustParseAddr("192.0.2.7")}
		w.SetService(s)
		w.SetService(service("b", "10.96.0.2"))
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.planned()
		bound := true
		for _, step := range []struct {
			name              string
			do                func()
			compiled, unbound int
			level             string
		}{
			{"a link has it", func() { w.host.set("192.0.2.7"); w.loop.HostChanged() }, 1, 1, "warn"},
			{"the link loses it", func() { w.host.set(); w.loop.HostChanged() }, 1, 0, "info"},
			{"another node has it", func() {
				w.SetNode(model.FromFile, model.Node{Name: "node-b", Addresses: s.ExternalIPs})
			}, 1, 1, "warn"},
			{"a link has it too", func() { w.host.set("192.0.2.7"); w.loop.HostChanged() }, 1, 1, ""},
			{"the node goes", func() { w.DeleteNode(model.FromFile, "node-b") }, 0, 1, ""},
			{"the link loses it, too", func() { w.host.set(); w.loop.HostChanged() }, 1, 1, ""},
		} {
			w.logs.TakeAll()
			step.do()
			w.after(time.Second)
			if got := len(w.mode.plans); got != step.compiled {
				w.Errorf("%s: %d Services compiled, want %d", step.name, got, step.compiled)
			}
			for _, f := range w.mode.plans[s.ID].Frontends {
				if f.Key.Addr == s.ExternalIPs[0] {
					bound = f.Bind
				}
			}
			st, _ := w.loop.Status(w.Context())
			if bound != (step.unbound == 0) || st.Unbound != step.unbound || w.seen.counts.Load().Unbound != step.unbound {
				w.Errorf("%s: bound %t, status %d, observer %d, want %d unbound", step.name, bound, st.Unbound, w.seen.counts.Load().Unbound, step.unbound)
			}
			var levels []string
			for _, e := range w.logs.FilterField(zap.String("reason", "VIPConflictsWithNode")).All() {
				levels = append(levels, e.Level.String())
			}
			if got := strings.Join(levels, " "); got != step.level {
				w.Errorf("%s: logged at %q, want %q", step.name, got, step.level)
			}
			if n := w.logs.FilterMessage("service note").FilterField(zap.Stringer("service", s.ID)).Len(); n > 1 {
				w.Errorf("%s: %d notes, want the one on endpoints at most: the conflict is told already", step.name, n)
			}
			w.planned()
		}
	})
}

func TestChangesOfTheHostAreLoggedInBounds(t *testing.T) {
	run(t, newMode(), func(w *world) {
		var many []string
		for i := range 300 {
			many = append(many, fmt.Sprintf("198.51.%d.%d", 100+i/200, i%200))
		}
		w.host.set(many...)
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.host.set(many[1:]...)
		w.loop.HostChanged()
		w.after(time.Second)
		lines := w.logs.FilterMessage("addresses of this node").All()
		if len(lines) != 2 {
			w.Fatalf("%d lines, want 2", len(lines))
		}
		came, went := lines[0].ContextMap(), lines[1].ContextMap()
		if got := fmt.Sprint(came["came"]); !strings.HasSuffix(got, "198.51.100.7 and 292 more]") || came["count"] != int64(300) {
			w.Errorf("count %v, came %s", came["count"], got)
		}
		if got := fmt.Sprint(went["came"], went["went"]); got != "[] [198.51.100.0]" {
			w.Errorf("came and went: %s", got)
		}
	})
}

// TestAddressThatMovesIsNoNews: the ptp plug-in puts the gateway's address on the link of every
// pod. The link of this address changes with each new or removed pod, but the set of addresses of
// this node does not.
func TestAddressThatMovesIsNoNews(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.host.set("10.244.1.1", "192.0.2.1")
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		for _, link := range []string{"veth1", "veth2", "veth3"} {
			w.host.move("10.244.1.1", link)
			w.loop.HostChanged()
			w.after(time.Second)
		}
		w.host.set("10.244.1.1", "192.0.2.2")
		w.loop.HostChanged()
		w.after(time.Second)
		var got []string
		for _, l := range w.logs.FilterMessage("addresses of this node").All() {
			got = append(got, fmt.Sprint(l.ContextMap()["came"], l.ContextMap()["went"]))
		}
		if want := []string{"[10.244.1.1 192.0.2.1] []", "[192.0.2.2] [192.0.2.1]"}; !slices.Equal(got, want) {
			w.Errorf("lines %q, want %q", got, want)
		}
	})
}
