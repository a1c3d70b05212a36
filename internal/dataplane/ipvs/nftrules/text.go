package nftrules

import (
	"fmt"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// tablesText is a ruleset with its elements.
type tablesText struct {
	nft.Ruleset
	elements map[nft.Key][]nft.Element
}

// Translate returns sets and rules as nft list table prints them. It takes them in the text of ipset
// save and of iptables-save. Before the rules of a family is a line "# ip" or "# ip6".
func Translate(sets, saved string) (string, error) {
	t := tablesText{
		nft.Ruleset{Tables: map[nft.Family]uint32{}, Sets: map[nft.Key]nft.Set{}, Chains: map[nft.Key]nft.Chain{}}, map[nft.Key][]nft.Element{},
	}
	contents, err := ipset.ParseSave(strings.NewReader(sets))
	if err != nil {
		return "", fmt.Errorf("read sets: %w", err)
	}
	for _, c := range contents {
		if err := t.set(c); err != nil {
			return "", err
		}
	}
	for _, part := range strings.Split("\n"+saved, "\n# ")[1:] {
		family, text, _ := strings.Cut(part, "\n")
		if err := t.rules(family, text); err != nil {
			return "", err
		}
	}
	return t.Text(func(k nft.Key) []nft.Element { return t.elements[k] }), nil
}

func (t tablesText) set(c ipset.Contents) error {
	k, ok := setKey(c.Set.Name)
	if !ok {
		return fmt.Errorf("set %s: %w", c.Set.Name, errUnknownSet)
	}
	t.Tables[k.Family], t.Sets[k] = nft.Version, lowerSet(c.Set)
	for _, e := range c.Entries {
		element, err := lowerEntry(e)
		if err != nil {
			return err
		}
		t.elements[k] = append(t.elements[k], element)
	}
	if t.Sets[k].Shape.Ranges() {
		r := ranges{}
		t.elements[k] = r.replaced(t.elements[k])
	}
	return nil
}

func (t tablesText) rules(name, text string) error {
	f := netkey.IPv4
	if name == netkey.IPv6.Table() {
		f = netkey.IPv6
	}
	tables, err := rules.ParseSave(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	for _, table := range tables {
		for _, c := range table.Chains {
			if err := t.chain(rules.ChainKey{Family: f, Table: table.Name, Name: c.Name}, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t tablesText) chain(k rules.ChainKey, c rules.SaveChain) error {
	lines := make([]netfilter.Line, len(c.Rules))
	for i, r := range c.Rules {
		lines[i] = netfilter.ReadLine(r)
	}
	low, err := lowerChain(k, netfilter.ChainOf(lines))
	if err != nil {
		return err
	}
	key := chainKey(k)
	t.Tables[key.Family] = nft.Version
	if len(low.detours) > 0 {
		t.Sets[key], t.elements[key] = detourMap, low.detours
	}
	out := nft.Chain{Rules: low.rules}
	if c.Builtin() {
		if len(low.rules) == 0 {
			return nil
		}
		out.Base = bases[hook{k.Table, k.Name}]
	}
	t.Chains[key] = out
	return nil
}

// RuleText returns a rule of a chain in the text of nftables, the name of its chain there, and what a
// rule is that nftables has not: its own text. A detour is an element of a map.
func RuleText(k rules.ChainKey, l netfilter.Line) (chain, rule string) {
	chain = chainKey(k).Name
	r := l.Rule(k.Family)
	if e, ok := lowerDetour(r); ok && e.To.IsValid() {
		return chain, "map @" + chain + " { " + e.Text(detourMap) + " }"
	}
	low, err := lowerRule(k, r)
	if err != nil {
		return chain, l.String()
	}
	return chain, low.Text(families[k.Family])
}

// SetText returns the family and the type of a set of ours in the words of nftables.
func SetText(name string) (family, typ string) {
	p := purposes[name]
	return p.family.String(), p.set.Type(p.family)
}

// EntryText returns an entry of a set of ours as an element of nftables.
func EntryText(name string, e ipset.Entry) string {
	element, err := lowerEntry(e)
	if err != nil {
		return e.String()
	}
	return element.Text(purposes[name].set)
}
