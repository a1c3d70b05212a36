package rules

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// The sentinels of the package, wrapped with the chain and the tool's message.
var (
	// ErrExist: the object is there already.
	ErrExist = netkey.ErrExist
	// ErrNotExist: a chain, jump target or set that is needed is not there.
	ErrNotExist = netkey.ErrNotExist
	// ErrBusy: the xtables lock was not had in time, or a chain is still
	// referenced; trying again later can help.
	ErrBusy = netkey.ErrBusy
	// ErrUnsupported: the tool, the family or a match or target is missing on
	// this node; trying again does not help.
	ErrUnsupported = errors.New("not supported on this node")
)

// Family is the address family a table belongs to.
type Family = netkey.Family

// The two families.
const (
	IPv4 = netkey.IPv4
	IPv6 = netkey.IPv6
)

// Backend is the kernel interface that the iptables binaries use. Rules
// of one backend are invisible to the tools of the other.
type Backend string

// The two backends. The empty Backend in [Options] asks for detection.
const (
	NFT    Backend = "nft"
	Legacy Backend = "legacy"
)

// ChainKey names one user chain.
type ChainKey struct {
	Family      Family
	Table, Name string
}

// String is for instance "ip nat KUBE-SERVICES".
func (k ChainKey) String() string { return k.Family.Table() + " " + k.Table + " " + k.Name }

// Compare orders by family, table and name.
func (k ChainKey) Compare(o ChainKey) int {
	return cmp.Or(cmp.Compare(k.Family, o.Family), cmp.Compare(k.Table, o.Table), cmp.Compare(k.Name, o.Name))
}

// Chain is the content of a user chain.
type Chain struct {
	// Rules has one rule a line, in order, without the leading "-A CHAIN",
	// in canonical form; "" is an empty chain.
	Rules string
}

// JumpKey names the jump from a built-in chain to one of ours. There is at
// most one: a key holds its Args as value.
type JumpKey struct {
	Family              Family
	Table, Hook, Target string
}

// String is for instance "ip nat PREROUTING -> KUBE-SERVICES".
func (k JumpKey) String() string {
	return k.Family.Table() + " " + k.Table + " " + k.Hook + " -> " + k.Target
}

// Compare orders by family, table, hook and target.
func (k JumpKey) Compare(o JumpKey) int {
	return cmp.Or(cmp.Compare(k.Family, o.Family), cmp.Compare(k.Table, o.Table),
		cmp.Compare(k.Hook, o.Hook), cmp.Compare(k.Target, o.Target))
}

// Jump is the match part of a jump in canonical form, for instance
// `-m comment --comment "kubernetes service portals"`; "" matches all.
type Jump struct{ Args string }

// Rule is the whole rule text of a jump to target, as iptables-save has it.
func (j Jump) Rule(target string) string {
	if j.Args == "" {
		return "-j " + target
	}
	return j.Args + " -j " + target
}

// Op is an operation on a row.
type Op = netkey.Op

// The operations. Add and Update both converge to the given value, whatever was there.
const (
	Add    = netkey.Add
	Update = netkey.Update
	Delete = netkey.Delete
)

// ChainChange is one row for [Handle.Write]; Chain is ignored by Delete.
type ChainChange struct {
	Op    Op
	Key   ChainKey
	Chain Chain
}

// RuleChange is one row for [Handle.Write]: a rule put into or taken out of a
// chain whose other rules stay.
type RuleChange struct {
	// Op is Add or Delete. Add makes the rule the first of its chain, whether or
	// not there is one like it; Delete takes the first that is like it.
	Op    Op
	Chain ChainKey
	Rule  string // one, without "-A CHAIN", in canonical form
}

// check refuses what would not be one line of input.
func (c RuleChange) check() error {
	switch {
	case c.Op != Add && c.Op != Delete:
		return fmt.Errorf("a rule is added or deleted: %w", ErrUnsupported)
	case strings.ContainsAny(c.Rule, "\r\n"):
		return fmt.Errorf("%q is not one rule: %w", c.Rule, ErrUnsupported)
	}
	return nil
}

// JumpChange is one row for [Handle.WriteJumps]; a Delete looks at its Key
// alone.
type JumpChange struct {
	Op   Op
	Key  JumpKey
	Jump Jump
	// Last puts a jump that is missing behind the rules of its hook instead of before them, but
	// before a rule that ends the way of every packet. It belongs to the write, not to the jump: an
	// existing one is not moved, and List does not return its place.
	Last bool
	// Behind are targets of jumps of the same hook that have to come first: one
	// that is missing goes right behind the last of those that are there. It
	// belongs to the write, like Last, and has no meaning with it.
	Behind []string
	// Exact deletes only a jump with the arguments of Jump: others to the same target belong to
	// another program.
	Exact bool
}

// spares reports whether a deletion leaves an existing jump alone.
func (c JumpChange) spares(have Jump) bool {
	f, target := c.Key.Family, c.Key.Target
	return c.Op == Delete && c.Exact && Canonical(f, have.Rule(target)) != Canonical(f, c.Jump.Rule(target))
}

// Counters counts since the Handle was made.
type Counters struct {
	// Processes launched: iptables-save, iptables-restore, and iptables that lists
	// one chain, mostly the hook of jumps. Each costs 5-20 ms of CPU, and with
	// legacy what reading the table takes: 0.4 s for 170,000 rules.
	Save, Restore, Jump uint64
	// Bytes handed to iptables-restore.
	Bytes uint64
	// Rows applied, changes of chains, rules and jumps alike.
	Rows uint64
}
