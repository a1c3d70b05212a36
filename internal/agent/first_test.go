package agent_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// cluster delivers the API server's Service, DNS under a distribution's own name, and
// two others.
func (w *world) cluster() {
	dns := service("rke2-coredns", "10.96.0.10")
	dns.ID.Namespace, dns.Ports = "kube-system", []model.ServicePort{{Protocol: model.UDP, Port: 53}}
	for _, s := range []model.Service{service("apples", "10.96.0.20"), dns, service("kubernetes", "10.96.0.1"), service("zebras", "10.96.0.30")} {
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
		{"a node that carries Services", func(m *mode) { m.serves = true }, [][]string{all}, []bool{false}},
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

// What does not matter more than the rest is not written twice.
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
