package nft

import (
	"net/netip"
	"slices"
	"strings"
)

// This file translates a statement into expressions of the kernel. The numbers are those of
// include/uapi/linux/netfilter/nf_tables.h.

const (
	networkHeader   = 1
	transportHeader = 2

	metaMark    = 3
	metaIn      = 6
	metaOut     = 7
	metaL4Proto = 16

	ctState  = 0
	ctStatus = 2

	cmpEqual     = 0
	cmpNotEqual  = 1
	cmpAtMost    = 3
	cmpAtLeast   = 5
	lookupInvert = 1

	fibAddrType = 3
	fibSource   = 1
	fibDest     = 2
	typeLocal   = 2 // RTN_LOCAL

	natDestination   = 1
	natAddrGiven     = 1  // NF_NAT_RANGE_MAP_IPS, which the kernel adds by itself
	natPortsGiven    = 2  // NF_NAT_RANGE_PROTO_SPECIFIED
	natRandomFully   = 16 // NF_NAT_RANGE_PROTO_RANDOM_FULLY
	rejectICMP       = 0
	unreachablePort  = 3 // ICMP
	unreachablePort6 = 4 // ICMPv6
	tcpOption        = 1
	optionMSS        = 2
)

func payload(register, base, offset, length uint32) expr {
	return ex("payload", number(1, register), number(2, base), number(3, offset), number(4, length))
}

func loadMeta(register, key uint32) expr { return ex("meta", number(1, register), number(2, key)) }
func setMeta(register, key uint32) expr  { return ex("meta", number(2, key), number(3, register)) }
func loadCT(register, key uint32) expr   { return ex("ct", number(1, register), number(2, key)) }

func compare(register, op uint32, v string) expr {
	return ex("cmp", number(1, register), number(2, op), value(3, v))
}

// equals compares with one value, or with all others.
func equals(register uint32, not bool, v string) expr {
	if not {
		return compare(register, cmpNotEqual, v)
	}
	return compare(register, cmpEqual, v)
}

func mask(register uint32, and, xor string) expr {
	return ex("bitwise", number(1, register), number(2, register), number(3, uint32(len(and))), value(4, and), value(5, xor))
}

func load(register uint32, v string) expr { return ex("immediate", number(1, register), value(2, v)) }

// bits matches some of the bits of a register that holds a number of this machine, or none.
func bits(register uint32, n uint32, none bool) []expr {
	zero := host(0)
	return []expr{mask(register, host(n), zero), equals(register, !none, zero)}
}

// addrOffset is where an address is in the header of IP.
func addrOffset(f Family, field Field) uint32 {
	switch {
	case f == IPv4 && field == SourceAddr:
		return 12
	case f == IPv4:
		return 16
	case field == SourceAddr:
		return 8
	}
	return 24
}

// register is the one that begins after so many words of four bytes: where there is a register of
// sixteen bytes, the kernel names that.
func register(word int) uint32 {
	if word%4 == 0 {
		return register1 + uint32(word/4)
	}
	return register32 + uint32(word)
}

// words is how many registers of four bytes a field takes.
func (f Field) words(family Family) int {
	if f.addr() {
		return family.addrLen() / 4
	}
	return 1
}

// lower loads the fields into registers, one behind another.
func (f Fields) lower(family Family) (out []expr) {
	word := 0
	for _, field := range f.list() {
		r := register(word)
		switch field {
		case Protocol:
			out = append(out, loadMeta(r, metaL4Proto))
		case SourcePort:
			out = append(out, payload(r, transportHeader, 0, 2))
		case DestinationPort:
			out = append(out, payload(r, transportHeader, 2, 2))
		default:
			out = append(out, payload(r, networkHeader, addrOffset(family, field), uint32(family.addrLen())))
		}
		word += field.words(family)
	}
	return out
}

func (s MatchSet) lower(f Family) []expr {
	lookup := ex("lookup", text(1, s.Set), number(2, register1))
	if s.Not {
		lookup.attrs = append(lookup.attrs, number(5, lookupInvert))
	}
	return append(s.Key.lower(f), lookup)
}

func (s VerdictMap) lower(f Family) []expr {
	return append(s.Key.lower(f), ex("lookup", text(1, s.Map), number(2, register1), number(3, registerVerdict)))
}

// lower looks up an address and a port, the latter in the register behind that of the address.
func (s DestinationMap) lower(f Family) []expr {
	port := register(f.addrLen() / 4)
	return append(s.Key.lower(f),
		ex("lookup", text(1, s.Map), number(2, register1), number(3, register1)),
		ex("nat", number(1, natDestination), number(2, uint32(f)), number(3, register1), number(4, register1), number(5, port), number(6, port), number(7, natAddrGiven|natPortsGiven)),
	)
}

func (KeepDestination) lower(f Family) []expr {
	return append(By(DestinationAddr).lower(f), ex("nat", number(1, natDestination), number(2, uint32(f)), number(3, register1), number(4, register1), number(7, natAddrGiven)))
}

func (s MatchAddr) lower(f Family) []expr {
	out := By(s.Field).lower(f)
	if !s.Net.IsSingleIP() {
		out = append(out, mask(register1, netmask(s.Net), strings.Repeat("\x00", f.addrLen())))
	}
	return append(out, equals(register1, s.Not, string(s.Net.Addr().AsSlice())))
}

func netmask(n netip.Prefix) string {
	b := make([]byte, n.Addr().BitLen()/8)
	for i := range n.Bits() {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return string(b)
}

func (s MatchProtocol) lower(Family) []expr {
	return []expr{loadMeta(register1, metaL4Proto), equals(register1, s.Not, string([]byte{s.Protocol}))}
}

func (s MatchICMP) lower(Family) []expr {
	return []expr{payload(register1, transportHeader, 0, 1), equals(register1, false, string([]byte{s.Type}))}
}

func (s MatchTCPFlags) lower(Family) []expr {
	return []expr{
		payload(register1, transportHeader, 13, 1),
		mask(register1, string([]byte{s.Mask}), "\x00"),
		equals(register1, false, string([]byte{s.Value})),
	}
}

// mss is the option of a segment that has its size, with the register that is loaded, or set from.
func mss(register attr) expr {
	e := ex("exthdr", octet(2, optionMSS), number(3, 2), number(4, 2), number(6, tcpOption), register)
	slices.SortFunc(e.attrs, compareAttrs)
	return e
}

func (s MatchMSS) lower(Family) []expr {
	return []expr{
		mss(number(1, register1)),
		compare(register1, cmpAtLeast, u16(s.From)),
		compare(register1, cmpAtMost, u16(s.To)),
	}
}

func (s SetMSS) lower(Family) []expr {
	return []expr{load(register1, u16(s.Size)), mss(number(7, register1))}
}

func (s MatchMark) lower(Family) []expr {
	out := []expr{loadMeta(register1, metaMark)}
	if s.Mask != ^uint32(0) {
		out = append(out, mask(register1, host(s.Mask), host(0)))
	}
	return append(out, equals(register1, s.Not, host(s.Value)))
}

func (s SetMark) lower(Family) []expr {
	if s.Keep == 0 {
		return []expr{load(register1, host(s.Flip)), setMeta(register1, metaMark)}
	}
	return []expr{loadMeta(register1, metaMark), mask(register1, host(s.Keep), host(s.Flip)), setMeta(register1, metaMark)}
}

func (s MatchState) lower(Family) []expr {
	get := loadCT(register1, ctState)
	if s.Not && s.States&(s.States-1) == 0 {
		return []expr{get, equals(register1, true, host(uint32(s.States)))}
	}
	return append([]expr{get}, bits(register1, uint32(s.States), s.Not)...)
}

func (s MatchStatus) lower(Family) []expr {
	return append([]expr{loadCT(register1, ctStatus)}, bits(register1, uint32(s.Status), s.Not)...)
}

func (s MatchLocal) lower(Family) []expr {
	flag := uint32(fibSource)
	if s.Field == DestinationAddr {
		flag = fibDest
	}
	return []expr{
		ex("fib", number(1, register1), number(2, fibAddrType), number(3, flag)),
		equals(register1, s.Not, host(typeLocal)),
	}
}

func (s MatchInterface) lower(Family) []expr {
	key := uint32(metaIn)
	if s.Out {
		key = metaOut
	}
	name, prefix := strings.CutSuffix(s.Name, "*")
	if !prefix {
		name += strings.Repeat("\x00", maxInterface+1-len(name))
	}
	return []expr{loadMeta(register1, key), equals(register1, s.Not, name)}
}

func (Counter) lower(Family) []expr { return []expr{ex("counter")} }

func (s Masquerade) lower(Family) []expr {
	flags := uint32(0)
	if s.Random {
		flags = natRandomFully
	}
	if s.From != 0 {
		return []expr{
			load(register1, u16(s.From)), load(register2, u16(s.To)),
			ex("masq", number(1, flags|natPortsGiven), number(2, register1), number(3, register2)),
		}
	}
	if flags == 0 {
		return []expr{ex("masq")}
	}
	return []expr{ex("masq", number(1, flags))}
}

func (Reject) lower(f Family) []expr {
	code := uint8(unreachablePort)
	if f == IPv6 {
		code = unreachablePort6
	}
	return []expr{ex("reject", number(1, rejectICMP), octet(2, code))}
}

func (v Verdict) lower(Family) []expr {
	return []expr{ex("immediate", number(1, registerVerdict), v.attr(2))}
}

// attr is the verdict as an attribute of an expression.
func (v Verdict) attr(kind uint16) attr {
	return attr{kind, code, u32(uint32(verdictNames[v.Kind].code)) + v.Chain}
}

// lower returns the expressions of a rule.
func (r Rule) lower(f Family) (out []expr) {
	for _, s := range r.Statements {
		out = append(out, s.lower(f)...)
	}
	return out
}
