package iptables_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
)

// TestEveryDropHasAReason: no rule of ours drops packets without one, and each reason has a rule.
func TestEveryDropHasAReason(t *testing.T) {
	k, c := newKernel(), config()
	c.Localhost = true
	apply(t, start(t, k, c, everyKind()...))
	chains, _, err := k.Fake.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[dataplane.DropReason]int{}
	for key, c := range chains {
		for rule := range strings.Lines(c.Rules) {
			drop, ok := iptables.DropOf(key, netfilter.ReadLine(strings.TrimSpace(rule)))
			if drops := strings.Contains(rule, "-j DROP") || strings.Contains(rule, "-j REJECT"); drops != ok || ok && !slices.Contains(iptables.DropTables(), key.Table) {
				t.Errorf("%s %s: reason %q", key, rule, drop.Reason)
			}
			if ok {
				found[drop.Reason]++
			}
			if wants := drop.Reason == dataplane.DropNoEndpoints; wants && !strings.Contains(drop.Port, "/") {
				t.Errorf("%s: of Service port %q", rule, drop.Port)
			}
		}
	}
	for _, why := range iptables.DropReasons() {
		if found[why] == 0 && why != dataplane.DropNoLocal {
			t.Errorf("no rule drops for %s", why)
		}
	}
}
