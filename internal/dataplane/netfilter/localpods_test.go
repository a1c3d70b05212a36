package netfilter_test

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

func TestLocalTrafficIsToldBySource(t *testing.T) {
	ranges := func(list ...string) (out []netip.Prefix) {
		for _, r := range list {
			out = append(out, netip.MustParsePrefix(r))
		}
		return out
	}
	for name, tt := range map[string]struct {
		pods   netfilter.LocalPods
		node   model.Node
		v4, v6 string // empty: there is no way to tell
	}{
		"the range of the cluster": {
			netfilter.LocalPods{Mode: netfilter.LocalClusterCIDR, ClusterCIDRs: ranges("10.244.0.0/16", "fd00:244::/56")},
			model.Node{}, "10.244.0.0/16", "fd00:244::/56",
		},
		"a range of one family": {
			netfilter.LocalPods{Mode: netfilter.LocalClusterCIDR, ClusterCIDRs: ranges("10.244.0.0/16")},
			model.Node{}, "10.244.0.0/16", "",
		},
		"all addresses tell nothing": {
			netfilter.LocalPods{Mode: netfilter.LocalClusterCIDR, ClusterCIDRs: ranges("0.0.0.0/0", "::/0")},
			model.Node{}, "", "",
		},
		"the range of the node": {
			netfilter.LocalPods{Mode: netfilter.LocalNodeCIDR, ClusterCIDRs: ranges("10.244.0.0/16")},
			model.Node{PodCIDRs: ranges("10.244.3.0/24")}, "10.244.3.0/24", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for family, want := range map[model.Family]string{model.IPv4: tt.v4, model.IPv6: tt.v6} {
				got := tt.pods.Match(family, tt.node)
				if want == "" && got == nil {
					continue
				}
				if want == "" || got != netfilter.Match(netfilter.Source(netip.MustParsePrefix(want))) {
					t.Errorf("%s: match %v, want %q", family, got, want)
				}
			}
		})
	}
}
