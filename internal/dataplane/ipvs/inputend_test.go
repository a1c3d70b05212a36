package ipvs_test

import (
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// TestAcceptBeforeEnd: INPUT ends in a rule that refuses everything, before the first sync or since
// an audit. Services are accepted before that rule, and a network policy stays before the accepting
// rule.
func TestAcceptBeforeEnd(t *testing.T) {
	const policy, end = "-A INPUT -j cali-INPUT\n", "-A INPUT -j REJECT --reject-with icmp-host-prohibited\n"
	input := rules.ChainKey{Family: rules.IPv4, Table: "filter", Name: "INPUT"}
	for _, tt := range []struct {
		name string
		make func(load func(string), start func(), audit func())
	}{
		{"there before", func(load func(string), start, _ func()) { load(policy + end); start() }},
		{"restored later", func(load func(string), start, audit func()) {
			start()
			load(policy + end + "-A INPUT -j KUBE-IPVS-ACCEPT\n")
			audit()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel()
			m := begin(t, k, web)
			tt.make(func(lines string) {
				mustBe(t, k.rules.Flush(input))
				mustBe(t, k.rules.Load(rules.IPv4, "*filter\n:cali-INPUT - [0:0]\n:KUBE-IPVS-ACCEPT - [0:0]\n"+lines+"COMMIT\n"))
			}, func() { apply(t, m) }, func() { round(t, m); apply(t, m) })
			hook := k.rules.Save(rules.IPv4)
			at := []int{strings.Index(hook, policy), strings.Index(hook, "-j KUBE-IPVS-ACCEPT\n"), strings.Index(hook, end)}
			if at[0] < 0 || at[1] < at[0] || at[2] < at[1] {
				t.Errorf("policy, accept and end are at %v of\n%s", at, hook)
			}
		})
	}
}

func mustBe(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
