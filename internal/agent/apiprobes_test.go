package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/apiprobe"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// wanted is a prober that keeps what the loop wants probed.
type wanted struct {
	last atomic.Pointer[[]netip.AddrPort]
}

func (p *wanted) Want(list []netip.AddrPort) {
	list = slices.Clone(list)
	slices.SortFunc(list, netip.AddrPort.Compare)
	p.last.Store(&list)
}

func (p *wanted) text() string {
	if last := p.last.Load(); last != nil {
		return fmt.Sprint(*last)
	}
	return "never called"
}

// apiServers puts the API servers and their Service into the catalog.
func (w *world) apiServers(addrs ...string) {
	s := service("kubernetes", "10.96.0.1")
	s.Ports = []model.ServicePort{{Name: "https", Protocol: model.TCP, Port: 443}, {Name: "udp", Protocol: model.UDP, Port: 443}}
	slice := model.Slice{
		ID: model.SliceID{Origin: model.FromFile, Namespace: "default", Name: "kubernetes"}, Service: s.ID, Family: model.IPv4,
		Ports: []model.SlicePort{{Name: "https", Protocol: model.TCP, Port: 6443}, {Name: "udp", Protocol: model.UDP, Port: 6444}},
	}
	for _, a := range addrs {
		slice.Endpoints = append(slice.Endpoints, model.Endpoint{Addr: netip.MustParseAddr(a), Ready: true, Serving: true})
	}
	w.SetSlice(slice)
	w.SetService(s)
}

// weights prints the backends of the API servers' Service over TCP, as the mode has them.
func (w *world) weights() string {
	var out []string
	w.mode.locked(func() {
		for id, p := range w.mode.plans {
			for _, f := range p.Frontends {
				if id.Name != "kubernetes" || f.Key.Protocol != model.TCP {
					continue
				}
				for _, b := range f.Backends {
					out = append(out, fmt.Sprintf("%s*%d", b.Addr.Addr(), b.Weight))
				}
			}
		}
	})
	return strings.Join(out, " ")
}

// TestTheLoopSaysWhatIsProbed: the endpoints of default/kubernetes over TCP, of no other Service, and
// none at which a frontend of this node answers.
func TestTheLoopSaysWhatIsProbed(t *testing.T) {
	m, p := newMode(), &wanted{}
	m.prober = func(*world) agent.Prober { return p }
	run(t, m, func(w *world) {
		want := func(text string) {
			w.Helper()
			if w.after(time.Second); p.text() != text {
				w.Errorf("probed: %s, want %s", p.text(), text)
			}
		}
		w.SetService(service("web", "10.96.0.9"))
		w.SetState(model.FromFile, source.Complete)
		want("never called")
		w.apiServers("192.0.2.1", "192.0.2.2")
		want("[192.0.2.1:6443 192.0.2.2:6443]")
		claim := service("claim", "10.96.0.8")
		claim.Ports[0].Port = 6443
		claim.ExternalIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		w.SetService(claim)
		w.after(time.Second)
		w.apiServers("192.0.2.1", "192.0.2.2", "192.0.2.3")
		want("[192.0.2.2:6443 192.0.2.3:6443]")
		w.DeleteService(service("kubernetes", "10.96.0.1").ID)
		want("[]")
	})
}

// TestFromProbeToWeight walks the whole path: an API server hangs, its probes fail, and its backend
// gets weight 0. It answers, and gets its weight again. Of two that hang none is left out.
func TestFromProbeToWeight(t *testing.T) {
	var hung atomic.Pointer[[]string]
	hung.Store(&[]string{})
	m := newMode()
	var prober *apiprobe.Prober
	m.prober = func(w *world) agent.Prober {
		prober = apiprobe.New(zap.NewNop(), apiprobe.Options{
			Period: func() time.Duration { return 10 * time.Second },
			Dial: func(_ context.Context, to netip.AddrPort) error {
				if slices.Contains(*hung.Load(), to.Addr().String()) {
					return errors.New("silence")
				}
				return nil
			},
			Changed: func(ctx context.Context, failing map[netip.AddrPort]string) {
				if err := w.loop.SetFailing(ctx, failing); err != nil && ctx.Err() == nil {
					w.Errorf("the loop refuses: %v", err)
				}
			},
		})
		return prober
	}
	run(t, m, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		done := make(chan error)
		go func() { done <- prober.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				w.Errorf("the prober ends with %v", err)
			}
		}()
		want := func(weights string, calls ...string) {
			w.Helper()
			got := slices.DeleteFunc(w.after(time.Minute), func(c string) bool { return c == "audit" })
			if w.weights() != weights {
				w.Errorf("weights %q, want %q", w.weights(), weights)
			}
			if !slices.Equal(got, calls) {
				w.Errorf("calls %q, want %q", got, calls)
			}
		}
		w.SetService(service("web", "10.96.0.9"))
		w.apiServers("192.0.2.1", "192.0.2.2", "192.0.2.3")
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Minute)
		want("192.0.2.1*1 192.0.2.2*1 192.0.2.3*1")
		w.planned()
		hung.Store(&[]string{"192.0.2.2"})
		want("192.0.2.1*1 192.0.2.2*0 192.0.2.3*1", "host", "apply")
		w.wantPlanned(map[string]string{"kubernetes": "10.96.0.1:443/tcp 10.96.0.1:443/udp"})
		hung.Store(&[]string{"192.0.2.2", "192.0.2.3"})
		want("192.0.2.1*1 192.0.2.2*1 192.0.2.3*1", "host", "apply")
		hung.Store(&[]string{})
		want("192.0.2.1*1 192.0.2.2*1 192.0.2.3*1", "host", "apply", "host", "apply")
		if notes := w.logs.FilterField(zap.String("code", string(model.EndpointFailsProbe))).Len(); notes == 0 {
			w.Error("no note in the log")
		}
	})
}
