package nftrules

import (
	"regexp"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// RowText returns a row of sets or rules, in the text of ipset or iptables with its family and table, as
// the nft command that adds it. A row of another kind, or one without a counterpart, is returned as
// it is.
func RowText(kind, row string) string {
	text, ok := "", false
	switch kind {
	case "sets":
		text, ok = setRow(row)
	case "rules":
		text, ok = ruleRow(row)
	}
	if !ok {
		return row
	}
	return text
}

// GroupText returns the name that the chain of a group of rules, "ip nat KUBE-SERVICES", has in
// nftables, with its family and table. Another group is returned as it is.
func GroupText(group string) string {
	k, rest, ok := cutChain(group)
	if !ok || rest != "" {
		return group
	}
	return object(chainKey(k))
}

// object returns one of our tables as commands of nft name it.
func object(k nft.Key) string { return k.Family.String() + " " + nft.TableName + " " + k.Name }

func setRow(row string) (string, bool) {
	words := strings.SplitN(row, " ", 3)
	if len(words) < 2 {
		return "", false
	}
	k, ok := setKey(words[1])
	switch {
	case !ok:
		return "", false
	case words[0] == "create":
		return "add set " + object(k) + " { type " + purposes[words[1]].set.Type(k.Family) + "; }", true
	case words[0] != "add" || len(words) < 3:
		return "", false
	}
	e, err := ipset.ParseEntry(purposes[words[1]].header.Type, words[2])
	if err != nil {
		return "", false
	}
	return "add element " + object(k) + " { " + EntryText(words[1], e) + " }", true
}

func ruleRow(row string) (string, bool) {
	words := strings.SplitN(row, " ", 4) // ip nat -A KUBE-SERVICES -j ...
	if len(words) < 4 {
		return "", false
	}
	k, rule, ok := cutChain(words[0] + " " + words[1] + " " + words[3])
	switch {
	case !ok:
		return "", false
	case words[2] == "-N":
		return "add chain " + object(chainKey(k)), true
	case words[2] != "-A":
		return "", false
	}
	_, text := RuleText(k, netfilter.ReadLine(rule))
	if element, is := strings.CutPrefix(text, "map @"+chainKey(k).Name+" "); is {
		return "add element " + object(chainKey(k)) + " " + element, true
	}
	return "add rule " + object(chainKey(k)) + " " + text, true
}

// cutChain takes "ip nat KUBE-SERVICES" from the beginning of a text.
func cutChain(text string) (k rules.ChainKey, rest string, ok bool) {
	words := strings.SplitN(text, " ", 4)
	if len(words) < 3 {
		return k, "", false
	}
	k = rules.ChainKey{Family: netkey.IPv4, Table: words[1], Name: words[2]}
	switch words[0] {
	case netkey.IPv4.Table():
	case netkey.IPv6.Table():
		k.Family = netkey.IPv6
	default:
		return k, "", false
	}
	if len(words) > 3 {
		rest = words[3]
	}
	return k, rest, true
}

// stepChains are the table and the chains at the beginning of a step of a packet.
var (
	stepChains = regexp.MustCompile(`^(mangle|nat|filter)((?: [A-Z][A-Z0-9-]+)+)`)
	chainWord  = regexp.MustCompile(`KUBE-[A-Z0-9-]+`)
)

// StepText returns a step of a packet with the names that chains have in nftables:
// "nat PREROUTING KUBE-SERVICES: ..." begins with "nat-PREROUTING nat-KUBE-SERVICES: ...".
func StepText(step string) string {
	m := stepChains.FindStringSubmatch(step)
	if m == nil {
		return step
	}
	table, rest := m[1], step[len(m[0]):]
	head := strings.Join(strings.Fields(m[2]), " "+table+between)
	rest = chainWord.ReplaceAllStringFunc(rest, func(name string) string {
		if _, isSet := setKey(name); isSet {
			return name
		}
		return table + between + name
	})
	return table + between + head + rest
}
