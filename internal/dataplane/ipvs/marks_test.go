package ipvs_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

func TestMarks(t *testing.T) {
	addr := netip.MustParseAddr
	at := func(a string, port uint16) vserver.ServerKey {
		return vserver.ServerKey{Addr: addr(a), Port: port, Protocol: vserver.ProtocolTCP}
	}
	m := &ipvs.Marks{
		Bound: map[netip.Addr]struct{}{addr("10.96.0.1"): {}}, Links: map[netip.Addr]string{addr("192.168.0.1"): "eth0"},
		Excluded: []netip.Prefix{netip.MustParsePrefix("10.96.9.0/24")},
	}
	m.Add("KUBE-IPVS-IPS", []ipset.Entry{ipset.IP(addr("10.96.0.2")), ipset.IP(addr("10.96.9.9"))})
	m.Add("KUBE-6-CLUSTER-IP", []ipset.Entry{ipset.IPPort(addr("fd00::1"), ipset.TCP, 80)})
	m.Add("KUBE-NODE-PORT-TCP", []ipset.Entry{ipset.Port(30080)})
	m.Add("KUBE-NODE-PORT-IPS", []ipset.Entry{ipset.IP(addr("192.168.0.2"))})
	for _, ours := range []vserver.ServerKey{
		at("10.96.0.1", 1), at("10.96.0.2", 2), at("fd00::1", 80), at("192.168.0.2", 30080),
	} {
		if !m.Own(ours) {
			t.Errorf("%s is not ours", ours)
		}
	}
	for _, foreign := range []vserver.ServerKey{
		at("10.96.0.3", 80), at("fd00::1", 81), at("192.168.0.1", 30081), at("192.168.0.1", 30080), at("192.168.0.3", 30080), at("10.96.9.9", 80),
	} {
		if m.Own(foreign) {
			t.Errorf("%s is ours", foreign)
		}
	}
}

// TestMarksOfKubeProxy: it has no set of the addresses on which NodePorts answer, so a link of this machine has to do.
func TestMarksOfKubeProxy(t *testing.T) {
	addr := netip.MustParseAddr
	m := &ipvs.Marks{Links: map[netip.Addr]string{addr("192.168.0.1"): "eth0"}}
	m.Add("KUBE-NODE-PORT-TCP", []ipset.Entry{ipset.Port(30080)})
	for a, want := range map[string]bool{"192.168.0.1": true, "192.168.0.2": false} {
		if got := m.Own(vserver.ServerKey{Addr: addr(a), Port: 30080, Protocol: vserver.ProtocolTCP}); got != want {
			t.Errorf("%s: ours %t, want %t", a, got, want)
		}
	}
}

// A reader without a memory owns what a mode has written.
func TestMarksOfWhatIsWritten(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, web, dual))
	m := &ipvs.Marks{}
	for _, name := range ipvs.MarkSets() {
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
		if !m.Own(key) {
			t.Errorf("%s is not ours", key)
		}
	}
}

// What names a server moves from one set to another when its frontend changes. Where the new
// entry cannot be added, the old one stays: else a process that dies then leaves a server
// behind that the next one does not know.
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
