package rules_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Rules of both backends and both families are counted, of all programs.
func TestCountRules(t *testing.T) {
	namespace(t)
	for _, b := range backends {
		needBackend(t, b)
	}
	want := map[rules.Backend]int{rules.NFT: 0, rules.Legacy: 0}
	if diff := cmp.Diff(want, rules.CountRules(t.Context(), rules.Options{})); diff != "" {
		t.Errorf("an empty namespace (-want +got):\n%s", diff)
	}
	tool(t, "", binary(rules.IPv4, rules.NFT, ""), "-A", "INPUT", "-j", "ACCEPT")
	tool(t, "", binary(rules.IPv6, rules.NFT, ""), "-A", "INPUT", "-j", "ACCEPT")
	tool(t, "", binary(rules.IPv4, rules.Legacy, ""), "-t", "nat", "-A", "OUTPUT", "-j", "ACCEPT")
	want = map[rules.Backend]int{rules.NFT: 2, rules.Legacy: 1}
	if diff := cmp.Diff(want, rules.CountRules(t.Context(), rules.Options{})); diff != "" {
		t.Errorf("census (-want +got):\n%s", diff)
	}
}
