package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
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
		detector dataplane.LocalDetector
		node     model.Node
		v4, v6   string // empty: there is no way to tell
	}{
		"the range of the cluster": {
			dataplane.LocalDetector{Mode: dataplane.LocalClusterCIDR, ClusterCIDRs: ranges("10.244.0.0/16", "fd00:244::/56")},
			model.Node{}, "-s 10.244.0.0/16", "-s fd00:244::/56",
		},
		"a range of one family": {
			dataplane.LocalDetector{Mode: dataplane.LocalClusterCIDR, ClusterCIDRs: ranges("10.244.0.0/16")},
			model.Node{}, "-s 10.244.0.0/16", "",
		},
		"all addresses tell nothing": {
			dataplane.LocalDetector{Mode: dataplane.LocalClusterCIDR, ClusterCIDRs: ranges("0.0.0.0/0", "::/0")},
			model.Node{}, "", "",
		},
		"the range of the node": {
			dataplane.LocalDetector{Mode: dataplane.LocalNodeCIDR, ClusterCIDRs: ranges("10.244.0.0/16")},
			model.Node{PodCIDRs: ranges("10.244.3.0/24")}, "-s 10.244.3.0/24", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for family, want := range map[model.Family]string{model.IPv4: tt.v4, model.IPv6: tt.v6} {
				if got, told := tt.detector.Match(family, tt.node); got != want || told != (want != "") {
					t.Errorf("%s: match %q (%t), want %q", family, got, told, want)
				}
			}
		})
	}
}
