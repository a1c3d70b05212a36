package firewall

import (
	"bytes"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

// This file evaluates rules of nftables as the kernel does (net/netfilter/nf_tables_core.c),
// on registers of which some bits are known.

// effect is the effect of a rule on a packet.
type effect struct {
	// match: whether it applies.
	match Tri
	// ends are the possible results if it matches; none means that the packet continues.
	ends []end
}

// end is a verdict.
type end struct {
	outcome outcome // of this rule itself
	chain   string  // to go to, for jump and goto
	jump    bool    // and to come back from
	word    string
}

// outcome is the set of possible results for a packet.
type outcome uint8

const (
	accepts outcome = 1 << iota
	drops
	passes  // on to the next rule
	returns // to the end of the chain
)

const anything = accepts | drops | passes

func (o outcome) has(one outcome) bool { return o&one != 0 }

// native is a rule of nftables with the sets of its table.
type native struct {
	rule nftables.Rule
	sets map[string]nftables.Set
	// compat: iptables-nft may have made the table, so chains with names of Kubernetes have the
	// same meaning as in iptables.
	compat bool
}

func (n native) handle() uint64 { return n.rule.Handle }
func (n native) text() string   { return "" }

func (n native) meet(p Packet) effect {
	m := machine{packet: p, sets: n.sets, effect: effect{match: Yes}, known: unknown(registers)}
	for _, e := range n.rule.Exprs {
		m.step(e)
		if m.effect.match == No {
			return m.effect
		}
	}
	for i, one := range m.effect.ends {
		if o, is := ours(one.chain, p); is && n.compat {
			m.effect.ends[i] = end{outcome: o, word: one.chain}
		}
	}
	return m.effect
}

// registers are so many bytes (NFT_REG32_COUNT times 4, less the verdict).
const registers = 64

type machine struct {
	packet Packet
	sets   map[string]nftables.Set
	known  value
	effect effect
}

// place is where a register begins; -1 for that of the verdict.
func place(register uint32) int {
	switch {
	case register >= 1 && register <= 4:
		return int(register-1) * 16
	case register >= 8 && register < 24:
		return int(register-8) * 4
	}
	return -1
}

func (m *machine) store(register uint32, v value) {
	at := place(register)
	if at < 0 {
		return
	}
	n := min(len(v.data), registers-at)
	copy(m.known.data[at:], v.data[:n])
	copy(m.known.known[at:], v.known[:n])
	m.known.never = slices.DeleteFunc(m.known.never, func(o never) bool { return o.at < at+n && at < o.at+len(o.data) })
	for _, o := range v.never {
		m.known.never = append(m.known.never, never{at + o.at, o.data})
	}
}

func (m *machine) load(register uint32, n int) value {
	at := place(register)
	if at < 0 || at+n > registers {
		return unknown(n)
	}
	out := value{data: m.known.data[at : at+n], known: m.known.known[at : at+n]}
	for _, o := range m.known.never {
		if o.at >= at {
			out.never = append(out.never, never{o.at - at, o.data})
		}
	}
	return out
}

func (m *machine) needs(t Tri) { m.effect.match = m.effect.match.and(t) }

// through are expressions that change nothing of the way.
var through = []string{"counter", "log", "notrack", "last", "comment", "flow_offload", "dup"}

// step evaluates one expression. Of one that is not known, nothing is.
func (m *machine) step(e nftables.Expr) {
	switch e.Name {
	case "payload":
		m.payload(e)
	case "meta":
		if e.Target != 0 {
			m.store(e.Target, m.packet.meta(e.Key))
		}
	case "ct":
		if e.Target != 0 {
			m.store(e.Target, m.packet.ct(e.Key))
		}
	case "cmp":
		m.needs(compare(m.load(e.Source, len(e.Data)), e.Op, e.Data))
	case "range":
		m.needs(within(m.load(e.Source, len(e.Data)), e))
	case "bitwise":
		m.bitwise(e)
	case "lookup":
		m.lookup(e)
	case "immediate":
		m.immediate(e)
	case "reject":
		m.ends(end{outcome: drops, word: "reject"})
	case "match", "limit", "connlimit", "quota", "objref", "dynset":
		m.needs(Maybe)
	case "target":
		m.target(e.Extension)
	case "queue", "synproxy", "fwd":
		m.ends(end{outcome: accepts | drops, word: e.Name})
	case "fib", "rt", "socket", "hash", "numgen", "osf", "exthdr", "xfrm", "tunnel", "byteorder":
		m.store(e.Target, unknown(16))
	default:
		if !slices.Contains(through, e.Name) {
			m.ends(end{outcome: anything, word: e.Name})
		}
	}
}

func (m *machine) ends(list ...end) { m.effect.ends = append(m.effect.ends, list...) }

func (m *machine) payload(e nftables.Expr) {
	if e.Target == 0 {
		return // it writes
	}
	v := unknown(int(min(e.Len, registers)))
	header := map[uint32]func() value{1: m.packet.network, 2: m.packet.transport}[e.Base]
	if header != nil {
		if h := header(); int(e.Offset)+len(v.data) <= len(h.data) {
			v = value{data: h.data[e.Offset:][:len(v.data)], known: h.known[e.Offset:][:len(v.data)]}
		}
	}
	m.store(e.Target, v)
}

// compare is cmp (enum nft_cmp_ops).
func compare(v value, op uint32, data []byte) Tri {
	switch op {
	case 0:
		return v.equals(data)
	case 1:
		return -v.equals(data)
	}
	if !v.whole() {
		return Maybe
	}
	c := bytes.Compare(v.data, data)
	switch op {
	case 2:
		return triOf(c < 0)
	case 3:
		return triOf(c <= 0)
	case 4:
		return triOf(c > 0)
	case 5:
		return triOf(c >= 0)
	}
	return Maybe
}

func within(v value, e nftables.Expr) Tri {
	if !v.whole() {
		return Maybe
	}
	in := triOf(bytes.Compare(v.data, e.Data) >= 0 && bytes.Compare(v.data, e.More) <= 0)
	if e.Op == 1 {
		return -in
	}
	return in
}

// bitwise is (source & Data) ^ More; other operations leave nothing known.
func (m *machine) bitwise(e nftables.Expr) {
	v := unknown(int(min(e.Len, registers)))
	if from := m.load(e.Source, len(v.data)); e.Op == 0 && len(e.Data) == len(v.data) && len(e.More) == len(v.data) {
		for i := range v.data {
			v.data[i] = from.data[i]&from.known[i]&e.Data[i] ^ e.More[i]
			v.known[i] = from.known[i] | ^e.Data[i]
		}
	}
	m.store(e.Target, v)
}

// lookup asks a set, or a map.
func (m *machine) lookup(e nftables.Expr) {
	set, ok := m.sets[e.Set]
	found, candidates := Maybe, []nftables.Element(nil)
	if ok && !set.Unread {
		found, candidates = m.find(e.Source, set)
	}
	if e.Op == 1 {
		found = -found
	}
	m.needs(found)
	if m.effect.match == No {
		return
	}
	var ends []end
	for _, el := range candidates {
		if el.Verdict != nil {
			ends = append(ends, endOf(*el.Verdict))
		}
	}
	switch {
	case e.Op == 1:
	case !ok || set.Unread:
		m.ends(end{outcome: anything, word: "map " + e.Set})
		m.store(e.Target, unknown(16))
	case len(ends) > 0:
		m.ends(ends...)
	case len(candidates) == 1 && found == Yes && len(candidates[0].Data) > 0:
		m.store(e.Target, known(candidates[0].Data...))
	default:
		m.store(e.Target, unknown(16))
	}
}

// find returns the elements that may be the one of a key.
func (m *machine) find(register uint32, set nftables.Set) (Tri, []nftables.Element) {
	if set.Interval && !slices.ContainsFunc(set.Elements, func(e nftables.Element) bool { return e.End != nil }) {
		return m.findRange(register, set.Elements)
	}
	found, candidates := No, []nftables.Element(nil)
	for _, el := range set.Elements {
		t := m.load(register, len(el.Key)).equals(el.Key)
		if el.End != nil && !bytes.Equal(el.Key, el.End) {
			t = Maybe // of each field: where fields end is not known
		}
		switch t {
		case Yes:
			return Yes, []nftables.Element{el}
		case Maybe:
			found, candidates = Maybe, append(candidates, el)
		}
	}
	return found, candidates
}

// findRange looks among ends of ranges: an element holds up to the next.
func (m *machine) findRange(register uint32, all []nftables.Element) (Tri, []nftables.Element) {
	if len(all) == 0 {
		return No, nil
	}
	key := m.load(register, len(all[0].Key))
	if !key.whole() {
		return Maybe, slices.DeleteFunc(slices.Clone(all), func(e nftables.Element) bool { return e.Close })
	}
	var last *nftables.Element
	for i := range all {
		if el := &all[i]; bytes.Compare(el.Key, key.data) <= 0 && (last == nil || bytes.Compare(el.Key, last.Key) > 0 || bytes.Equal(el.Key, last.Key) && last.Close) {
			last = el
		}
	}
	if last == nil || last.Close {
		return No, nil
	}
	return Yes, []nftables.Element{*last}
}

func (m *machine) immediate(e nftables.Expr) {
	if e.Verdict != nil {
		m.ends(endOf(*e.Verdict))
		return
	}
	m.store(e.Target, known(e.Data...))
}

func endOf(v nftables.Verdict) end {
	switch v.Code {
	case nftables.VerdictAccept:
		return end{outcome: accepts, word: "accept"}
	case nftables.VerdictDrop:
		return end{outcome: drops, word: "drop"}
	case nftables.VerdictContinue, nftables.VerdictBreak:
		return end{outcome: passes}
	case nftables.VerdictReturn:
		return end{outcome: returns}
	case nftables.VerdictJump, nftables.VerdictGoto:
		return end{chain: v.Chain, jump: v.Code == nftables.VerdictJump}
	}
	return end{outcome: accepts | drops, word: "queue"}
}

// target is a target of xtables in a rule of nftables.
func (m *machine) target(name string) {
	if o, known := targets[name]; known {
		m.ends(end{outcome: o, word: name})
	} else {
		m.ends(end{outcome: anything, word: name})
	}
}

// targets are those of iptables-extensions(8) that end the way of a packet, or do not.
var targets = map[string]outcome{
	"ACCEPT": accepts, "DROP": drops, "REJECT": drops, "TARPIT": drops, "NFQUEUE": accepts | drops, "QUEUE": accepts | drops,
	"LOG": passes, "NFLOG": passes, "ULOG": passes, "MARK": passes, "CONNMARK": passes, "SECMARK": passes, "CONNSECMARK": passes, "SET": passes,
	"TRACE": passes, "CT": passes, "NOTRACK": passes, "TCPMSS": passes, "CLASSIFY": passes, "AUDIT": passes, "CHECKSUM": passes, "DSCP": passes,
	"TOS": passes, "TTL": passes, "HL": passes, "RATEEST": passes, "IDLETIMER": passes, "LED": passes, "TEE": passes, "HMARK": passes,
}
