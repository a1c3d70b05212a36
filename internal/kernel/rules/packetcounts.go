package rules

import (
	"strconv"
	"strings"
)

// Counted is a rule with the number of packets that matched it since it was written.
type Counted struct {
	Chain   ChainKey
	Rule    string // as in Chain.Rules
	Packets uint64
}

// ParseCounted reads rules of some chains from what iptables-save -c prints. Lines that are
// something else, or that it cannot read, are left out: a counter is never guessed.
func ParseCounted(f Family, text string, wanted func(ChainKey) bool) []Counted {
	var out []Counted
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = name
			continue
		}
		counters, rest, ok := strings.Cut(strings.TrimPrefix(line, "["), "] -A ")
		if !ok || !strings.HasPrefix(line, "[") {
			continue
		}
		packets, _, _ := strings.Cut(counters, ":")
		n, err := strconv.ParseUint(packets, 10, 64)
		chain, rule, _ := strings.Cut(rest, " ")
		if k := (ChainKey{Family: f, Table: table, Name: chain}); err == nil && wanted(k) {
			out = append(out, Counted{Chain: k, Rule: rule, Packets: n})
		}
	}
	return out
}
