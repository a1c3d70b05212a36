package firewall

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Table is a table with the base chains that packets meet.
type Table struct {
	// Name as an operator knows it: "inet firewalld", or "iptables-nft filter".
	Name string
	// IPv4 and IPv6: whose packets meet it.
	IPv4, IPv6 bool
	// Tool is the command that changes it: nft, iptables-nft and the like.
	Tool   string
	chains map[string]*chain
	// Unread is why not all of it could be read.
	Unread string
}

type chain struct {
	rules []rule
	hook  string // hook of a base chain
	drop  bool   // the policy of a base chain
	// unread: its rules are not known.
	unread bool
}

// rule is one of either kind.
type rule interface {
	meet(p Packet) effect
	handle() uint64
	text() string
}

// FromNFT makes a table of one of nftables.
func FromNFT(f nftables.Filter) Table {
	t := Table{
		Name: f.String(), IPv4: f.Family != "ip6", IPv6: f.Family != "ip", Tool: "nft", Unread: f.Unread, chains: map[string]*chain{},
	}
	compat := (f.Family == "ip" || f.Family == "ip6") && slices.Contains([]string{"filter", "mangle", "raw", "security"}, f.Name)
	for name, c := range f.Chains {
		to := &chain{unread: c.Unread}
		if c.Hook != nil {
			to.hook, to.drop = c.Hook.Name, c.Hook.Drop
		}
		for _, r := range c.Rules {
			to.rules = append(to.rules, native{rule: r, sets: f.Sets, compat: compat})
		}
		t.chains[name] = to
	}
	return t
}

// hooksOf are the built-in chains that are judged.
var hooksOf = map[string]string{"INPUT": "input", "FORWARD": "forward", "OUTPUT": "output"}

// FromSave makes a table of one that iptables-save has printed.
func FromSave(f rules.Family, b rules.Backend, s rules.SaveTable) Table {
	tool := map[rules.Family]string{rules.IPv4: "iptables", rules.IPv6: "ip6tables"}[f] + "-" + string(b)
	t := Table{Name: tool + " " + s.Name, IPv4: f == rules.IPv4, IPv6: f == rules.IPv6, Tool: tool, chains: map[string]*chain{}}
	for _, c := range s.Chains {
		to := &chain{}
		if c.Builtin() {
			to.hook, to.drop = hooksOf[c.Name], c.Policy == "DROP"
		}
		for _, r := range c.Rules {
			to.rules = append(to.rules, newLine(f, r))
		}
		t.chains[c.Name] = to
	}
	return t
}

// firewalld reports whether firewalld made the table.
func (t Table) firewalld() bool {
	_, zones := t.chains["INPUT_ZONES"]
	return t.Name == "inet firewalld" || zones
}

// Cause is what drops a packet.
type Cause struct {
	Table string // Table.Name
	Base  string // the base chain
	// Chain has the rule that drops it, and Number is its place there, 1 the first; both are
	// zero where the policy of Base does.
	Chain  string
	Number int
	Handle uint64 // handle of nftables
	Text   string // the rule, of iptables
	// Word is the verdict: drop, reject, DROP ...
	Word string
	// At is the place in Base of the rule that led there.
	At int
}

// String names the rule that drops, as a part of a sentence.
func (c Cause) String() string {
	switch {
	case c.Chain == "":
		return fmt.Sprintf("table %s, chain %s: its policy is drop", c.Table, c.Base)
	case c.Text != "":
		return fmt.Sprintf("table %s, chain %s, rule %d (%s)%s", c.Table, c.Chain, c.Number, c.Text, c.from())
	}
	return fmt.Sprintf("table %s, chain %s, rule %d (%s, handle %d)%s", c.Table, c.Chain, c.Number, c.Word, c.Handle, c.from())
}

func (c Cause) from() string {
	if c.Chain == c.Base {
		return ""
	}
	return ", which " + c.Base + " leads to"
}

// Finding is what one base chain does with a packet.
type Finding struct {
	// Drops: every way through the chain ends so, and Cause is where.
	Drops bool
	// Unclear: some way through it may end so.
	Unclear bool
	Cause   Cause
}

// Base lists the base chains of a hook.
func (t Table) base(hook string) []string {
	var out []string
	for name, c := range t.chains {
		if c.hook == hook {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// meet judges what a base chain does with a packet.
func (t Table) meet(base string, p Packet, work *int) Finding {
	w := walk{table: t, packet: p, known: map[string]result{}, work: work, base: base}
	r := w.through(base, 0)
	c := t.chains[base]
	if r.all.has(passes) {
		r.all &^= passes
		if c.drop {
			r.all |= drops
			r.drop = orFirst(r.drop, &Cause{Table: t.Name, Base: base, Word: "drop", At: len(c.rules)})
		} else {
			r.all |= accepts
		}
	}
	out := Finding{Drops: r.all == drops, Unclear: r.all.has(drops) && r.all != drops}
	if r.drop != nil {
		out.Cause = *r.drop
	}
	return out
}

func orFirst(a, b *Cause) *Cause {
	if a != nil {
		return a
	}
	return b
}

// walk is one packet on its way through a table.
type walk struct {
	table  Table
	packet Packet
	base   string
	known  map[string]result // of chains that others lead to
	work   *int              // rules that were evaluated
}

// result is the possible result for the packet in a chain; passes means that it leaves the chain at
// its end.
type result struct {
	all  outcome
	drop *Cause // the first that drops it
}

// deepest is how far chains lead to each other; the kernel has NFT_JUMP_STACK_SIZE, 16.
const deepest = 32

func (w *walk) through(name string, depth int) result {
	if r, ok := w.known[name]; ok {
		return r
	}
	c := w.table.chains[name]
	if c == nil || c.unread || depth > deepest {
		return result{all: anything}
	}
	var out result
	for i, r := range c.rules {
		*w.work++
		e := r.meet(w.packet)
		if e.match == No {
			continue
		}
		next := w.ends(e, r, name, i, depth, &out)
		if e.match == Yes && !next.has(passes) {
			w.known[name] = out
			return out
		}
	}
	out.all |= passes
	w.known[name] = out
	return out
}

// ends adds what a rule that matches may do, and returns whether the next may follow.
func (w *walk) ends(e effect, r rule, name string, i, depth int, out *result) (next outcome) {
	if len(e.ends) == 0 {
		return passes
	}
	for _, one := range e.ends {
		o, cause := one.outcome, (*Cause)(nil)
		switch {
		case one.chain != "":
			sub := w.through(one.chain, depth+1)
			if o, cause = sub.all, sub.drop; o.has(passes) && !one.jump {
				o = o&^passes | returns
			}
		case o.has(drops):
			cause = &Cause{
				Table: w.table.Name, Base: w.base, Chain: name, Number: i + 1, Handle: r.handle(), Text: r.text(), Word: strings.ToLower(one.word),
			}
		}
		if o.has(returns) {
			out.all |= passes // of this chain: its end
		}
		out.all |= o & (accepts | drops)
		if out.drop == nil && cause != nil {
			drop := *cause
			drop.At = i + 1 // the caller's is the one that counts
			out.drop = &drop
		}
		next |= o & passes
	}
	return next
}
