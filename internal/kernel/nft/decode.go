package nft

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// This file finds the statements of a rule that was read. A reader guesses a statement from a few
// attributes; raise accepts it only if the statement's own expressions are exactly those that were
// read. So a reader need not be strict, and what no statement expresses remains Unknown.

// Unknown is an expression that no statement of this package expresses. It is read, never written.
type Unknown struct{ Text string }

func (u Unknown) print(printer) string { return "[ " + u.Text + " ]" }
func (u Unknown) check(Family) error {
	return unless(false, "expression "+u.print(printer{})+" was read, and cannot be written")
}
func (u Unknown) lower(Family) []expr { return []expr{ex(u.Text)} }

// raise returns the statements that expressions are.
func raise(f Family, exprs []expr) (out []Statement) {
	for len(exprs) > 0 {
		s, n := raiseOne(f, exprs)
		out, exprs = append(out, s), exprs[n:]
	}
	return out
}

// raiseOne returns the statement at the beginning, and how many expressions it is.
func raiseOne(f Family, exprs []expr) (Statement, int) {
	for _, s := range guess(f, exprs) {
		own := s.lower(f)
		if s.check(f) == nil && len(own) <= len(exprs) && equalExprs(own, exprs[:len(own)]) {
			return s, len(own)
		}
	}
	return Unknown{exprs[0].String()}, 1
}

// guess returns what may be at the beginning of expressions, the longest first.
func guess(f Family, e []expr) []Statement {
	at := func(i int) expr { // of a short list the rest is empty
		if i < len(e) {
			return e[i]
		}
		return expr{}
	}
	switch e[0].name {
	case "payload":
		return append(guessKey(f, e), guessPayload(f, at)...)
	case "meta":
		return append(guessKey(f, e), guessMeta(at)...)
	case "ct":
		return guessCT(at)
	case "fib":
		field := SourceAddr
		if e[0].number(3) == fibDest {
			field = DestinationAddr
		}
		return []Statement{MatchLocal{field, inverted(at(1))}}
	case "exthdr":
		return []Statement{MatchMSS{short(at(1).get(3)), short(at(2).get(3))}}
	case "immediate":
		return guessImmediate(at)
	case "masq":
		return []Statement{Masquerade{Random: e[0].number(1)&natRandomFully != 0}}
	case "reject":
		return []Statement{Reject{}}
	case "counter":
		return []Statement{Counter{}}
	}
	return nil
}

func inverted(e expr) bool { return e.number(2) == cmpNotEqual }

// short reads a number of two bytes in network byte order.
func short(v string) uint16 {
	if len(v) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16([]byte(v))
}

// hosted reads a number in the byte order of this machine.
func hosted(v string) uint32 {
	if len(v) != 4 {
		return 0
	}
	return nfnetlink.Native.Uint32([]byte(v))
}

// guessKey reads the fields that are loaded, and what is looked up by them.
func guessKey(f Family, e []expr) []Statement {
	var key Fields
	n := 0
	for n < len(e) && n < maxFields {
		field := fieldOf(f, e[n])
		if field == 0 {
			break
		}
		key[n] = field
		n++
	}
	if n == 0 || n == len(e) || e[n].name != "lookup" {
		return nil
	}
	name := e[n].text(1)
	return []Statement{DestinationMap{key, name}, VerdictMap{key, name}, MatchSet{key, name, e[n].number(5) == lookupInvert}}
}

// fieldOf returns the field that an expression loads, 0 where it loads none.
func fieldOf(f Family, e expr) Field {
	switch {
	case e.name == "meta" && e.number(2) == metaL4Proto:
		return Protocol
	case e.name != "payload":
		return 0
	case e.number(2) == transportHeader && e.number(3) == 0:
		return SourcePort
	case e.number(2) == transportHeader && e.number(3) == 2:
		return DestinationPort
	case e.number(3) == addrOffset(f, SourceAddr):
		return SourceAddr
	case e.number(3) == addrOffset(f, DestinationAddr):
		return DestinationAddr
	}
	return 0
}

func guessPayload(f Family, at func(int) expr) []Statement {
	first := func(v string) uint8 { return (v + "\x00")[0] }
	field := fieldOf(f, at(0))
	addr := func(v string, length int) netip.Prefix {
		a, ok := netip.AddrFromSlice([]byte(v))
		if !ok || length > a.BitLen() {
			return netip.Prefix{}
		}
		return netip.PrefixFrom(a, length)
	}
	return []Statement{
		KeepDestination{},
		MatchAddr{field, addr(at(2).get(3), ones(at(1).get(4))), inverted(at(2))},
		MatchAddr{field, addr(at(1).get(3), 8*f.addrLen()), inverted(at(1))},
		MatchTCPFlags{first(at(2).get(3)), first(at(1).get(4))},
		MatchICMP{first(at(1).get(3))},
	}
}

// ones counts the leading bits of a mask.
func ones(m string) (n int) {
	for i := range 8 * len(m) {
		if m[i/8]&(0x80>>(i%8)) == 0 {
			break
		}
		n++
	}
	return n
}

func guessMeta(at func(int) expr) []Statement {
	name := strings.TrimRight(at(1).get(3), "\x00")
	out, not := at(0).number(2) == metaOut, inverted(at(1))
	return []Statement{
		SetMark{hosted(at(1).get(4)), hosted(at(1).get(5))},
		MatchMark{hosted(at(2).get(3)), hosted(at(1).get(4)), inverted(at(2))},
		MatchMark{hosted(at(1).get(3)), ^uint32(0), not},
		MatchProtocol{(at(1).get(3) + "\x00")[0], not},
		MatchInterface{name, out, not},
		MatchInterface{name + "*", out, not},
	}
}

func guessCT(at func(int) expr) []Statement {
	n, none := hosted(at(1).get(4)), !inverted(at(2))
	return []Statement{
		MatchState{State(n), none},
		MatchStatus{Status(n), none},
		MatchState{State(hosted(at(1).get(3))), true},
	}
}

func guessImmediate(at func(int) expr) []Statement {
	v := at(0).get(2)
	out := []Statement{
		Masquerade{short(v), short(at(1).get(2)), at(2).number(1)&natRandomFully != 0},
		SetMSS{short(v)},
		SetMark{0, hosted(v)},
	}
	if decided, ok := verdictOf(v); ok {
		out = append(out, decided)
	}
	return out
}

// verdictOf reads the code and the chain of a verdict.
func verdictOf(v string) (Verdict, bool) {
	if len(v) < 4 {
		return Verdict{}, false
	}
	for kind, known := range verdictNames {
		if int32(binary.BigEndian.Uint32([]byte(v[:4]))) == known.code {
			return Verdict{kind, v[4:]}, true
		}
	}
	return Verdict{}, false
}
