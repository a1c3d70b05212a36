package wiring

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// TestAffectedByHost: a change of the host affects the Services whose plan reads it, and no other.
func TestAffectedByHost(t *testing.T) {
	s := config.Defaults()
	s.Proxy.NodePortAddresses = []string{"192.0.2.0/24", "2001:db8::/32"}
	c, err := s.Check("node-a")
	if err != nil {
		t.Fatal(err)
	}
	host := func(addrs ...string) model.Host {
		h := model.Host{Links: map[netip.Addr]string{}}
		for _, a := range addrs {
			h.Links[netip.MustParseAddr(a)] = "eth0"
		}
		h.NodePorts = NodePortsFor(Static(c))(h)
		return h
	}
	plain := model.Service{ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []model.ServicePort{{Port: 80}}}
	open := plain
	open.Ports = []model.ServicePort{{Port: 80, NodePort: 30080}}
	all := model.Families()
	ask := AffectsFor(Static(c), all[:])
	for _, tt := range []struct {
		name        string
		before, now model.Host
		plain, open bool
	}{
		{"the same", host("192.0.2.1"), host("192.0.2.1"), false, false},
		{"an address of NodePorts", host("192.0.2.1"), host("192.0.2.1", "192.0.2.2"), false, true},
		{"an address that was not selected", host("192.0.2.1"), host("192.0.2.1", "198.51.100.1"), false, false},
		{"the Service's own", host(), host("10.96.0.1"), true, true},
		{"a zone", host(), model.Host{Node: model.Node{Zone: "east"}}, true, true},
	} {
		q := ask(tt.before, tt.now)
		if q(&plain, nil) != tt.plain || q(&open, nil) != tt.open {
			t.Errorf("%s: plain %t, open %t, want %t, %t", tt.name, q(&plain, nil), q(&open, nil), tt.plain, tt.open)
		}
	}
}
