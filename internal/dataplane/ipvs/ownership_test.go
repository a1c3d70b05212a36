package ipvs_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/ownership"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

// A reader without a memory owns what a mode has written.
func TestOwnsWhatIsWritten(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, web, dual))
	m := &ownership.Snapshot{}
	for _, name := range ownership.SetNames() {
		_, entries, err := k.sets.List(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		m.Add(name, entries)
	}
	servers, err := k.servers.ListServers(t.Context())
	if err != nil || len(servers) != 2 {
		t.Fatalf("%d servers, error %v", len(servers), err)
	}
	for key := range servers {
		if !m.Owns(key) {
			t.Errorf("%s is not ours", key)
		}
	}
}

// The entry that marks a server as ours moves from one set to another when its frontend changes.
// Where the new entry cannot be added, the old one stays: else a process that dies then leaves a
// server behind that the next one does not know.
func TestServersAreAlwaysNamed(t *testing.T) {
	const addr = "203.0.113.1"
	frontends := map[string]func(*model.Frontend){
		"ClusterIP":              func(f *model.Frontend) { f.Kind = model.KindClusterIP },
		"ExternalIP":             func(f *model.Frontend) { f.Kind = model.KindExternalIP },
		"ExternalIP, Local":      func(f *model.Frontend) { f.Kind, f.Local = model.KindExternalIP, true },
		"ExternalIP, tunnel":     func(f *model.Frontend) { f.Kind, f.Forward = model.KindExternalIP, model.ForwardTunnel },
		"load balancer":          func(f *model.Frontend) { f.Kind = model.KindLoadBalancer },
		"load balancer, Local":   func(f *model.Frontend) { f.Kind, f.Local = model.KindLoadBalancer, true },
		"NodePort":               func(f *model.Frontend) { f.Kind, f.Capture = model.KindNodePort, false },
		"end of a detour":        func(f *model.Frontend) { f.Kind = model.KindDetour },
		"ExternalIP with a bind": func(f *model.Frontend) { f.Kind, f.Bind, f.Capture = model.KindExternalIP, true, false },
	}
	named := func(kind func(*model.Frontend)) model.ServicePlan {
		return external("web", "10.96.0.10", addr, model.KindExternalIP, func(f *model.Frontend) {
			f.Bind, f.Capture = false, true
			kind(f)
		})
	}
	machine := host()
	machine.NodePorts = append(machine.NodePorts, netip.MustParseAddr(addr))
	for from, before := range frontends {
		for to, after := range frontends {
			k := newKernel()
			m := begin(t, k, named(before))
			m.SetHost(machine)
			apply(t, m)
			m.Set(named(after))
			k.sets.Inject(ipsettest.Fault{Op: ipset.OpAdd, Err: ipset.ErrBusy})
			m.Apply(t.Context(), dataplane.ApplyOptions{})
			k.sets.Heal()
			next := begin(t, k, service("web", "10.96.0.10"))
			next.SetHost(machine)
			apply(t, next)
			if s := k.servers.String(); strings.Contains(s, addr) {
				t.Errorf("from %s to %s, these are left:\n%s", from, to, s)
			}
		}
	}
}
