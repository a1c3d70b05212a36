package ipvs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// TestEveryDropHasAReason: no rule of ours drops packets without one, and each reason has a rule.
func TestEveryDropHasAReason(t *testing.T) {
	k := newKernel()
	captured := service("far", "203.0.113.7", first)
	captured.Frontends[0].Kind, captured.Frontends[0].Bind, captured.Frontends[0].Capture = model.KindExternalIP, false, true
	apply(t, begin(t, k, draining(first), captured))
	written, _, err := k.rules.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[dataplane.DropReason]int{}
	for key, c := range written {
		for rule := range strings.Lines(c.Rules) {
			drop, ok := chains.DropOf(key, netfilter.ReadLine(strings.TrimSpace(rule)))
			if drops := strings.Contains(rule, "-j DROP") || strings.Contains(rule, "-j REJECT"); drops != ok || ok && !slices.Contains(chains.DropTables(), key.Table) {
				t.Errorf("%s %s: reason %q", key, rule, drop.Reason)
			}
			if ok {
				found[drop.Reason]++
			}
		}
	}
	for _, why := range chains.DropReasons() {
		if found[why] == 0 {
			t.Errorf("no rule drops for %s", why)
		}
	}
}
