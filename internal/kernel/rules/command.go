package rules

import (
	"fmt"
	"strings"
)

// ChainCommand is the iptables(8) command for a change of a chain, with the number of its rules.
func ChainCommand(c ChainChange) string {
	if c.Op == Delete {
		return command(c.Key.Family, c.Key.Table, "-X", c.Key.Name)
	}
	rules := 0
	if c.Chain.Rules != "" {
		rules = strings.Count(c.Chain.Rules, "\n") + 1
	}
	option := "-N"
	if c.Op == Update {
		option = "-F"
	}
	return fmt.Sprintf("%s # and %d rules", command(c.Key.Family, c.Key.Table, option, c.Key.Name), rules)
}

// JumpCommand is the iptables(8) command for a change of a jump.
func JumpCommand(c JumpChange) string {
	return command(c.Key.Family, c.Key.Table, option(c.Op), c.Key.Hook, c.Jump.Rule(c.Key.Target))
}

// RuleCommand is the iptables(8) command for a single rule.
func RuleCommand(c RuleChange) string {
	return command(c.Chain.Family, c.Chain.Table, option(c.Op), c.Chain.Name, c.Rule)
}

func option(op Op) string {
	if op == Delete {
		return "-D"
	}
	return "-I"
}

func command(f Family, table string, words ...string) string {
	tool := "iptables"
	if f == IPv6 {
		tool = "ip6tables"
	}
	return tool + " -t " + table + " " + strings.Join(words, " ")
}
