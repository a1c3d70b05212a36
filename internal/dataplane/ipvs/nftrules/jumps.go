package nftrules

import (
	"fmt"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// jump is one rule of a base chain.
type jump struct {
	key   rules.JumpKey
	value rules.Jump
	rule  nft.Rule
}

// jumpsOf returns the jumps of a base chain in order. A chain with anything else, or at another hook,
// has none: it is to be written again.
func jumpsOf(k rules.ChainKey, c nft.Chain) (list []jump) {
	if base, known := bases[hook{k.Table, k.Name}]; !known || base != c.Base {
		return nil
	}
	for _, r := range c.Rules {
		up := raiseRule(k, r)
		to := up.JumpsTo()
		key := rules.JumpKey{Family: k.Family, Table: k.Table, Hook: k.Name, Target: to}
		if to == "" || slices.ContainsFunc(list, func(j jump) bool { return j.key == key }) {
			return nil
		}
		args := netfilter.NewLine(k.Family, netfilter.If(up.Match...)).String()
		list = append(list, jump{key, rules.Jump{Args: args}, r})
	}
	return list
}

// jumpList is a base chain under change.
type jumpList struct {
	key       nft.Key
	base      nft.Base
	exists    bool
	otherBase bool // the chain in the kernel is at another hook
	jumps     []jump
	changes   []int // those that it takes part in
}

func newJumpList(k nft.Key, found nft.Ruleset) (*jumpList, error) {
	chain, _ := parseName(k)
	base, known := bases[hook{chain.Table, chain.Name}]
	if !known {
		return nil, fmt.Errorf("chain %s: %w in nftables: no base chain stands for it", chain, rules.ErrUnsupported)
	}
	c, exists := found.Chains[k]
	list := jumpsOf(chain, c)
	return &jumpList{key: k, base: base, exists: exists, otherBase: exists && c.Base != base, jumps: list}, nil
}

// change carries out a change in memory.
func (l *jumpList) change(c rules.JumpChange) error {
	at := l.at(c.Key.Target)
	if c.Op == rules.Delete {
		if at >= 0 && (!c.Exact || l.jumps[at].value == c.Jump) {
			l.jumps = slices.Delete(l.jumps, at, at+1)
		}
		return nil
	}
	from := rules.ChainKey{Family: c.Key.Family, Table: c.Key.Table, Name: c.Key.Hook}
	line := netfilter.ReadLine(c.Jump.Rule(c.Key.Target))
	rule, err := lowerRule(from, line.Rule(c.Key.Family))
	if err != nil {
		return err
	}
	now := jump{c.Key, c.Jump, rule}
	if at >= 0 {
		l.jumps[at] = now
		return nil
	}
	l.jumps = slices.Insert(l.jumps, l.place(c), now)
	return nil
}

func (l *jumpList) at(target string) int {
	return slices.IndexFunc(l.jumps, func(j jump) bool { return j.key.Target == target })
}

// place returns where a jump that is missing goes.
func (l *jumpList) place(c rules.JumpChange) int {
	if c.Last {
		return len(l.jumps)
	}
	behind := 0
	for _, target := range c.Behind {
		behind = max(behind, l.at(target)+1)
	}
	return behind
}

// row returns the change of the base chain.
func (l *jumpList) row() nft.ChainChange {
	if len(l.jumps) == 0 {
		return nft.ChainChange{Op: nft.Delete, Key: l.key}
	}
	c := nft.ChainChange{Op: nft.Add, Key: l.key, Chain: nft.Chain{Base: l.base}}
	if l.exists && !l.otherBase {
		c.Op = nft.Update
	}
	for _, j := range l.jumps {
		c.Chain.Rules = append(c.Chain.Rules, j.rule)
	}
	return c
}
