package netfilter_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

func TestOwnersOfChains(t *testing.T) {
	type answers struct{ owned, iptables, only, both, unknown, service bool }
	for name, want := range map[string]answers{
		"nat KUBE-SERVICES":           {owned: true, iptables: true, both: true},
		"filter KUBE-SERVICES":        {owned: true, iptables: true, only: true},
		"nat KUBE-NODE-PORT":          {owned: true},
		"nat KUBE-DETOUR":             {owned: true, unknown: true},
		"filter KUBE-IPVS-OUT-FILTER": {owned: true},
		"mangle KUBE-IPVS-OUT-FILTER": {owned: true, unknown: true},
		"mangle KUBE-PROXY-CANARY":    {owned: true, iptables: true, only: true},
		"nat KUBE-SEP-ABC":            {owned: true, iptables: true, only: true, service: true},
		"nat KUBE-XLB-ABC":            {owned: true, iptables: true, only: true, service: true},
		"filter KUBE-SEP-ABC":         {},
		"filter KUBE-FIREWALL":        {},
		"nat KUBE-KUBELET-CANARY":     {},
		"nat INPUT":                   {},
		"raw KUBE-SERVICES":           {},
	} {
		var table, chain string
		for i, r := range name {
			if r == ' ' {
				table, chain = name[:i], name[i+1:]
			}
		}
		for _, f := range model.Families() {
			k := netfilter.Key(f, table, chain)
			got := answers{
				netfilter.Owned(k), netfilter.OfIPTables(k), netfilter.OnlyIPTables(k),
				netfilter.OfBothModes(k), netfilter.UnknownToProxy(k), netfilter.OfService(k),
			}
			if got != want {
				t.Errorf("%s: %+v, want %+v", k, got, want)
			}
		}
	}
}
