package agent_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// health journals what the loop tells.
type health struct {
	mu      sync.Mutex
	journal []string
	mode    *mode // whose journal has it, too
}

func (h *health) note(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.journal = append(h.journal, text)
	if h.mode != nil {
		h.mode.locked(func() { h.mode.journal = append(h.mode.journal, text) })
	}
}

func (h *health) Set(id model.ServiceID, c model.HealthCheck) {
	h.note(fmt.Sprintf("%s port=%d ready=%d", id.Name, c.Port, c.IPv4.Ready))
}

func (h *health) Listen(addrs []netip.Addr) { h.note(fmt.Sprint("listen ", addrs)) }

// relays is a relay that opens no port; the journal is that of health.
type relays struct{ health }

func (r *relays) Set(id model.ServiceID, list []model.Relay) {
	r.note(fmt.Sprintf("%s relays=%d", id.Name, len(list)))
}

func (r *relays) State(k model.FrontendKey, _ model.ServiceID) string {
	return fmt.Sprint("port ", k.Port, " is in use")
}

// told returns what was told since the last call.
func (h *health) told() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.Join(h.journal, ", ")
	h.journal = nil
	return text
}

// balanced is a Service with a health-check port.
func balanced(name, vip string, port uint16) model.Service {
	s := service(name, vip)
	s.Type, s.ExternalLocal, s.HealthCheckNodePort = "LoadBalancer", true, port
	s.Ingress = []model.Ingress{{Addr: netip.MustParseAddr("192.0.2.9")}}
	return s
}

// endpoints are ready on this node.
func endpoints(name string, n int) model.Slice {
	s := model.Slice{ID: model.SliceID{Origin: model.FromFile, Namespace: "default", Name: name}, Service: service(name, "10.96.0.1").ID,
		Family: model.IPv4, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
	for i := range n {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}), Node: "node-a", Ready: true, Serving: true})
	}
	return s
}

func TestHealthIsToldAfterTheKernel(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.health.mode = w.mode
		w.SetService(balanced("a", "10.96.0.1", 32000))
		w.SetSlice(endpoints("a", 1))
		w.want(time.Second) // not in sync
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Second, "start", "load", "apply", "a port=32000 ready=1")
		w.SetSlice(endpoints("a", 2))
		w.want(time.Second, "apply", "a port=32000 ready=2")
		other := service("b", "10.96.0.2")
		w.SetService(other)
		w.want(time.Second, "apply")
		again := balanced("a", "10.96.0.1", 32000)
		again.Affinity = time.Minute // changes the plan, and nothing of the health check
		w.SetService(again)
		w.want(time.Second, "apply")
		if s, _ := w.loop.Status(w.Context()); s.HealthChecks != 1 {
			w.Errorf("%d health checks in the status, want 1", s.HealthChecks)
		}
		w.DeleteService(again.ID)
		w.want(time.Second, "apply", "a port=0 ready=0")
		w.DeleteService(other.ID)
		w.want(time.Second, "apply")
	})
}

func TestRelayIsToldAfterTheKernel(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.relay.mode = w.mode
		a := service("a", "10.96.0.1")
		a.Ports[0].NodePort = 30080
		w.SetService(a)
		w.SetSlice(endpoints("a", 1))
		w.want(time.Second) // not in sync
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Second, "start", "load", "apply", "a relays=1")
		w.SetSlice(endpoints("a", 2)) // behind the cluster IP
		w.want(time.Second, "apply")
		for text, services := range map[string]int{"127.0.0.1:30080": 1, "127.0.0.1:30080/udp": 0, "default/a": 1} {
			q, err := agent.ParseQuery(text, "")
			if err != nil {
				w.Fatal(err)
			}
			s, err := w.loop.Explain(w.Context(), q)
			if err != nil || len(s.Services) != services {
				w.Fatalf("%s: report %+v, error %v", text, s, err)
			}
			if services == 0 {
				continue
			}
			want := []agent.RelayReport{{Key: "127.0.0.1:30080/tcp", Asked: true, Targets: []netip.AddrPort{netip.MustParseAddrPort("10.96.0.1:80")}, Failure: "port 30080 is in use"}}
			if got := s.Services[0].Relays; !reflect.DeepEqual(got, want) {
				w.Errorf("%s: relays %+v, want %+v", text, got, want)
			}
		}
		w.DeleteService(a.ID)
		w.want(time.Second, "apply", "a relays=0")
	})
}

func TestHealthListensWhereNodePortsAnswer(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.host.set("192.0.2.1")
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.host.set("192.0.2.1", "192.0.2.2")
		w.loop.HostChanged()
		w.after(time.Second)
		w.SetNode(model.FromFile, model.Node{Name: "node-a", Zone: "east"}) // the host, but none of its addresses
		w.after(time.Second)
		if got, want := w.health.told(), "listen [192.0.2.1], listen [192.0.2.1 192.0.2.2]"; got != want {
			w.Errorf("told %q, want %q", got, want)
		}
	})
}

func TestHealthyTurnsRedWhenNothingGetsThrough(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		healthy := func(at string, want bool) {
			w.Helper()
			if got := w.loop.Healthy(); got != want {
				w.Errorf("%s: healthy %t, want %t", at, got, want)
			}
		}
		w.SetService(service("a", "10.96.0.1"))
		w.after(time.Second)
		healthy("before the first sync", false)
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		healthy("in sync", true)
		w.after(10 * time.Minute)
		healthy("nothing to do", true)

		m.locked(func() { m.applyErr = errors.New("busy") })
		for i := range 3 {
			w.SetService(service(fmt.Sprint(i), fmt.Sprintf("10.96.1.%d", i)))
		}
		w.after(59 * time.Second)
		healthy("failing for less than two audit periods", true)
		w.after(2 * time.Second)
		healthy("failing for longer", false)
		m.locked(func() { m.applyErr = nil })
		w.after(time.Minute)
		healthy("written", true)
	})
}

// A row that is refused for good is its Service's misfortune.
func TestHealthyStaysWhenAFewRowsAreRefused(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		for i := range 9 {
			w.SetService(service(fmt.Sprint(i), fmt.Sprintf("10.96.0.%d", i+1)))
		}
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		m.locked(func() { m.applyErr = errors.New("refused") })
		w.SetService(service("b", "10.96.0.100"))
		w.after(10 * time.Minute)
		if s, _ := w.loop.Status(w.Context()); !s.Healthy || s.Failures == 0 {
			w.Errorf("status %+v, want failing and healthy", s)
		}
	})
}

// A loop that is stuck cannot say that it is.
func TestHealthyDoesNotWaitForTheLoop(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		stall := make(chan struct{}) // the next call to the kernel does not come back
		m.locked(func() { m.stall = stall })
		w.SetService(service("a", "10.96.0.1"))
		time.Sleep(2 * time.Minute)
		if w.loop.Healthy() {
			t.Error("healthy with a loop that is stuck")
		}
		m.locked(func() { m.stall = nil })
		close(stall)
		w.after(time.Minute)
		if !w.loop.Healthy() {
			t.Error("not healthy after the loop came round")
		}
	})
}
