package plan_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
)

func nets(all ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range all {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(all ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range all {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// onLinks puts addresses on links of the machine, written link=address.
func onLinks(all ...string) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, s := range all {
		link, a, _ := strings.Cut(s, "=")
		out[addr(a)] = link
	}
	return out
}

// TestNodePortAddresses checks the meaning of --nodeport-addresses, which is that of
// kube-proxy v1.37.
func TestNodePortAddresses(t *testing.T) {
	links := onLinks("eth0=192.0.2.10", "eth0=2001:db8::10", "eth1=10.1.2.3", "eth1=10.1.2.2", "eth1=169.254.7.7", "eth1=fd00::3")
	all := "10.1.2.2 10.1.2.3 169.254.7.7 192.0.2.10 2001:db8::10 fd00::3"
	dual := addrs("192.0.2.10", "10.1.2.3", "2001:db8::10", "fd00::3")

	for _, tt := range []struct {
		name string
		sel  plan.NodePortSelection
		node []netip.Addr
		want string
	}{
		{"unset", plan.NodePortSelection{}, dual, all},
		{"unset without a Node", plan.NodePortSelection{}, nil, all},
		{"all", plan.NodePortSelection{All: true}, dual, all},
		{"all with anything else", plan.NodePortSelection{All: true, Primary: true, Localhost: true, CIDRs: nets("10.0.0.0/8")}, nil, all},
		{"a network of each family", plan.NodePortSelection{CIDRs: nets("10.0.0.0/8", "fd00::/8")}, dual, "10.1.2.2 10.1.2.3 fd00::3"},
		{"a network of one family opens the other", plan.NodePortSelection{CIDRs: nets("10.0.0.0/8")}, dual, "10.1.2.2 10.1.2.3 2001:db8::10 fd00::3"},
		{"and the other way round", plan.NodePortSelection{CIDRs: nets("fd00::/8")}, dual, "10.1.2.2 10.1.2.3 169.254.7.7 192.0.2.10 fd00::3"},
		{"everything of one family", plan.NodePortSelection{CIDRs: nets("0.0.0.0/0", "fd00::/8")}, dual, "10.1.2.2 10.1.2.3 169.254.7.7 192.0.2.10 fd00::3"},
		{"networks that hold nothing", plan.NodePortSelection{CIDRs: nets("203.0.113.0/24", "2001:db8:1::/48")}, dual, ""},
		{"a single address", plan.NodePortSelection{CIDRs: nets("10.1.2.3/32", "fd00::3/128")}, dual, "10.1.2.3 fd00::3"},
		{"link-local", plan.NodePortSelection{CIDRs: nets("169.254.0.0/16", "fe80::/10")}, dual, "169.254.7.7"},
		{"primary", plan.NodePortSelection{Primary: true}, dual, "192.0.2.10 2001:db8::10"},
		{"primary never opens the other family", plan.NodePortSelection{Primary: true}, addrs("192.0.2.10"), "192.0.2.10"},
		{"primary without a Node", plan.NodePortSelection{Primary: true}, nil, ""},
		{"primary that is on no link, as behind NAT", plan.NodePortSelection{Primary: true}, addrs("198.51.100.1", "192.0.2.10", "fd00::3"), "fd00::3"},
		{"primary and a network", plan.NodePortSelection{Primary: true, CIDRs: nets("10.1.2.2/31")}, addrs("192.0.2.10"), "10.1.2.2 10.1.2.3 192.0.2.10"},
		{"localhost", plan.NodePortSelection{Localhost: true}, dual, ""},
		{"localhost and primary", plan.NodePortSelection{Localhost: true, Primary: true}, dual, "192.0.2.10 2001:db8::10"},
		{"localhost and a network", plan.NodePortSelection{Localhost: true, CIDRs: nets("10.0.0.0/8")}, dual, "10.1.2.2 10.1.2.3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := model.Host{Node: model.Node{Addresses: tt.node}, Links: links}
			var got []string
			for _, a := range plan.NodePortAddresses(tt.sel, host) {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}
