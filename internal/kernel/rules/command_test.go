package rules_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

func TestCommands(t *testing.T) {
	chain := rules.ChainKey{Family: rules.IPv6, Table: "nat", Name: "KUBE-SERVICES"}
	jump := rules.JumpKey{Family: rules.IPv4, Table: "nat", Hook: "OUTPUT", Target: "KUBE-SERVICES"}
	for got, want := range map[string]string{
		rules.ChainCommand(rules.ChainChange{Op: rules.Add, Key: chain}):                                                "ip6tables -t nat -N KUBE-SERVICES # and 0 rules",
		rules.ChainCommand(rules.ChainChange{Op: rules.Update, Key: chain, Chain: rules.Chain{Rules: "-j A\n-j B"}}):    "ip6tables -t nat -F KUBE-SERVICES # and 2 rules",
		rules.ChainCommand(rules.ChainChange{Op: rules.Delete, Key: chain}):                                             "ip6tables -t nat -X KUBE-SERVICES",
		rules.JumpCommand(rules.JumpChange{Op: rules.Add, Key: jump, Jump: rules.Jump{Args: "-m comment --comment a"}}): "iptables -t nat -I OUTPUT -m comment --comment a -j KUBE-SERVICES",
		rules.JumpCommand(rules.JumpChange{Op: rules.Delete, Key: jump}):                                                "iptables -t nat -D OUTPUT -j KUBE-SERVICES",
		rules.RuleCommand(rules.RuleChange{Op: rules.Add, Chain: chain, Rule: "-p tcp -j DROP"}):                        "ip6tables -t nat -I KUBE-SERVICES -p tcp -j DROP",
		rules.RuleCommand(rules.RuleChange{Op: rules.Delete, Chain: chain, Rule: "-p tcp -j DROP"}):                     "ip6tables -t nat -D KUBE-SERVICES -p tcp -j DROP",
	} {
		if got != want {
			t.Errorf("command %q, want %q", got, want)
		}
	}
}
