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

// cluster delivers the API server's Service, DNS under a distribution's own name, and
// two others, one of which is a tenant's with the port of DNS.
func (w *world) cluster() {
	dns := service("rke2-coredns", "10.96.0.10")
	dns.ID.Namespace, dns.DNS = "kube-system", true
	apples := service("apples", "10.96.0.20")
	apples.Ports = []model.ServicePort{{Protocol: model.UDP, Port: 53}}
	for _, s := range []model.Service{apples, dns, service("kubernetes", "10.96.0.1"), service("zebras", "10.96.0.30")} {
		w.SetService(s)
	}
	w.SetState(model.FromFile, source.Complete)
}

func TestFirstThingsFirst(t *testing.T) {
	first, all := []string{"kubernetes", "rke2-coredns"}, []string{"apples", "kubernetes", "rke2-coredns", "zebras"}
	for _, tt := range []struct {
		name string
		mode func(m *mode)
		want [][]string
		kept []bool
	}{
		{"a fresh node", func(*mode) {}, [][]string{first, all}, []bool{true, false}},
		{"a node that carries Services", func(m *mode) { m.carries = true }, [][]string{all}, []bool{false}},
		{"a kernel that cannot be read", func(m *mode) { m.loadErr = errors.New("interrupted") }, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMode()
			tt.mode(m)
			run(t, m, func(w *world) {
				w.cluster()
				w.after(50 * time.Millisecond)
				m.locked(func() {
					if diff := cmp.Diff(tt.want, m.planned); diff != "" {
						w.Errorf("services at each pass (-want +got):\n%s", diff)
					}
					if diff := cmp.Diff(tt.kept, m.keptOrphans); diff != "" {
						w.Errorf("orphans kept (-want +got):\n%s", diff)
					}
					m.loadErr = nil
				})
				w.after(time.Minute)
				m.locked(func() {
					if diff := cmp.Diff(all, m.planned[len(m.planned)-1]); diff != "" {
						w.Errorf("services in the end (-want +got):\n%s", diff)
					}
				})
				m.locked(func() { m.planned = nil })
				w.SetService(service("kubernetes", "10.96.0.2"))
				w.after(time.Second)
				m.locked(func() {
					if diff := cmp.Diff([][]string{all}, m.planned); diff != "" {
						w.Errorf("services at a later pass (-want +got):\n%s", diff)
					}
				})
			})
		})
	}
}

// If all Services or none are urgent, there is one pass.
func TestNothingToServeFirst(t *testing.T) {
	for name, services := range map[string][]string{"nothing urgent": {"apples"}, "nothing else": {"kubernetes"}, "nothing": nil} {
		t.Run(name, func(t *testing.T) {
			run(t, newMode(), func(w *world) {
				for _, s := range services {
					w.SetService(service(s, "10.96.0.1"))
				}
				w.SetState(model.FromFile, source.Complete)
				w.want(time.Second, "start", "load", "apply")
			})
		})
	}
}

// backed adds Services with an endpoint each, named by a number.
func (w *world) backed(from, to int) {
	for i := from; i < to; i++ {
		s := service(fmt.Sprintf("s%04d", i), fmt.Sprintf("10.97.%d.%d", i/250, i%250+1))
		w.SetService(s)
		w.SetSlice(model.Slice{ID: model.SliceID{Origin: model.FromFile, Namespace: "default", Name: s.ID.Name}, Service: s.ID, Family: model.IPv4,
			Ports:     []model.SlicePort{{Protocol: model.TCP, Port: 80}},
			Endpoints: []model.Endpoint{{Addr: netip.MustParseAddr("10.244.0.1"), Ready: true, Serving: true}}})
	}
}

// counts is how many Services each pass had.
func (m *mode) counts() (n []int) {
	m.locked(func() {
		for _, p := range m.planned {
			n = append(n, len(p))
		}
	})
	return n
}

// An empty kernel is filled in chunks, of which only the last may delete orphans.
func TestFirstStartInParts(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode func(m *mode)
		want []int
	}{
		{"a fresh node", func(*mode) {}, []int{0, 1, 513, 1025, 1201}},
		{"a mode that writes all at once", func(m *mode) { m.hasBase = false }, []int{1, 1201}},
		{"a node that carries Services", func(m *mode) { m.carries = true }, []int{1201}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMode()
			m.hasBase = true
			tt.mode(m)
			run(t, m, func(w *world) {
				w.after(time.Second)
				w.backed(0, 1200)
				w.SetService(service("kubernetes", "10.96.0.1"))
				w.SetState(model.FromFile, source.Complete)
				w.after(time.Second)
				if diff := cmp.Diff(tt.want, m.counts()); diff != "" {
					w.Errorf("Services at each pass (-want +got):\n%s", diff)
				}
				m.locked(func() {
					for i, kept := range m.keptOrphans {
						if last := i == len(m.keptOrphans)-1; kept == last {
							w.Errorf("pass %d of %d keeps orphans: %t", i, len(m.keptOrphans), kept)
						}
					}
				})
			})
		})
	}
}

// Services are served before the sources are in sync if the kernel carried nothing.
func TestServedWhileComing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		serves bool
		want   []int
	}{{"a fresh node", false, []int{0, 512, 700, 701}}, {"a node that carries Services", true, []int{701}}} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMode()
			m.hasBase, m.carries = true, tt.serves
			run(t, m, func(w *world) {
				w.backed(0, 100)
				w.SetService(service("waits", "10.96.0.9")) // without an endpoint
				w.after(time.Second)
				w.SetState(model.FromFile, source.Listing)
				w.backed(100, 700)
				w.after(time.Second)
				if s, err := w.loop.Status(w.Context()); err != nil || s.Synced || s.Ready {
					w.Errorf("status %+v, error %v", s, err)
				}
				w.SetState(model.FromFile, source.Complete)
				w.after(time.Second)
				if diff := cmp.Diff(tt.want, m.counts()); diff != "" {
					w.Errorf("Services at each pass (-want +got):\n%s", diff)
				}
				if s, err := w.loop.Status(w.Context()); err != nil || !s.Synced || !s.Ready {
					w.Errorf("status %+v, error %v", s, err)
				}
			})
		})
	}
}

// A change of the host while Services come concerns those that are served, and no other.
func TestHostChangesWhileComing(t *testing.T) {
	m := newMode()
	m.hasBase = true
	run(t, m, func(w *world) {
		w.backed(0, 3)
		w.SetService(service("waits", "10.96.0.9"))
		w.SetState(model.FromFile, source.Listing)
		w.after(time.Second)
		w.SetNode(model.FromFile, model.Node{Name: "node-a", Zone: "z2"})
		w.backed(3, 4)
		w.after(time.Second)
		m.locked(func() {
			if got := m.planned[len(m.planned)-1]; len(got) != 4 {
				w.Errorf("served: %v", got)
			}
		})
	})
}

// Settings that change before the sources are in sync apply to the Services that are served, and make no
// waiting Service served.
func TestSettingsChangeWhileComing(t *testing.T) {
	m := newMode()
	m.hasBase = true
	run(t, m, func(w *world) {
		w.backed(0, 3)
		w.SetService(service("waits", "10.96.0.9"))
		w.SetState(model.FromFile, source.Listing)
		w.after(time.Second)
		if err := w.loop.Reconfigure(w.Context(), func(context.Context) error {
			w.settings.Scheduler = scheduler.MustParse("wlc")
			return nil
		}); err != nil {
			w.Fatal(err)
		}
		w.backed(3, 4)
		w.after(time.Second)
		check := func(when string, want int) {
			m.locked(func() {
				if got := names(m.plans); len(got) != want {
					w.Errorf("%s, planned: %v", when, got)
				}
				for id, p := range m.plans {
					for _, f := range p.Frontends {
						if f.Scheduler.Name() != "wlc" {
							w.Errorf("%s, %s goes by %s", when, id, f.Scheduler)
						}
					}
				}
			})
		}
		check("before the rest has come", 4)
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		check("then", 5)
	})
}

// A host that changes before the sources are in sync makes no waiting Service served.
func TestHostMovesWhileComing(t *testing.T) {
	m := newMode()
	m.hasBase = true
	run(t, m, func(w *world) {
		w.backed(0, 3)
		w.SetService(service("waits", "10.96.0.9"))
		w.SetState(model.FromFile, source.Listing)
		w.after(time.Second)
		w.host.set("10.96.0.9", "10.97.0.1") // which those look at that have it
		w.loop.HostChanged()
		w.after(time.Second)
		m.locked(func() {
			if got := names(m.plans); len(got) != 3 {
				w.Errorf("planned: %v", got)
			}
		})
	})
}
