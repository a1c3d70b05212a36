package cli

import (
	"context"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// countedRules have been read of some kernel.
type countedRules struct {
	list []rules.Counted
	err  error
}

func (c *countedRules) Counted(_ context.Context, _ []string, wanted func(rules.ChainKey) bool) ([]rules.Counted, error) {
	var out []rules.Counted
	for _, one := range c.list {
		if wanted(one.Chain) {
			out = append(out, one)
		}
	}
	return out, c.err
}

func inChain(name, rule string, packets uint64) rules.Counted {
	return rules.Counted{Chain: rules.ChainKey{Family: rules.IPv4, Table: "filter", Name: name}, Rule: rule, Packets: packets}
}

// TestExplainedDrops: in iptables mode a rule belongs to one Service, and explain shows it only there.
func TestExplainedDrops(t *testing.T) {
	k := &countedRules{list: []rules.Counted{
		inChain("KUBE-SERVICES", `-d 10.96.0.1/32 -m comment --comment "shop/web:http has no endpoints" -j REJECT`, 3),
		inChain("KUBE-SERVICES", `-d 10.96.0.2/32 -m comment --comment "shop/webs:http has no endpoints" -j REJECT`, 4),
		inChain("KUBE-SERVICES", `-d 10.96.0.3/32 -m comment --comment "shop/web has no local endpoints" -j DROP`, 0),
		inChain("KUBE-FORWARD", "-m conntrack --ctstate INVALID -j DROP", 6),
	}}
	got, err := explainedDrops(t.Context(), k, iptables.Name, []string{"shop/web"})
	if err != nil || len(got) != 2 || got[0].Packets != 3 || got[0].Port != "shop/web:http" || got[1].Reason != "invalid" || got[1].Port != "" {
		t.Errorf("%+v, %v", got, err)
	}
}
