package nfttest

import (
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
)

// addr is the nth address of a family's Services.
func addr(f nft.Family, n int) netip.Addr {
	if f == nft.IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
	}
	return netip.AddrFrom4([4]byte{10, 96 + byte(n>>16), byte(n >> 8), byte(n)})
}

// prefix is the nth network of a family, none of which overlap.
func prefix(f nft.Family, n int) netip.Prefix {
	if f == nft.IPv6 {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: byte(n >> 8), 3: byte(n)}), 32)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(11 + n>>8), byte(n), 0, 0}), 16)
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func all(f nft.Family) netip.Prefix {
	if f == nft.IPv6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// end is the last network of a family's addresses.
func end(f nft.Family) netip.Prefix {
	if f == nft.IPv6 {
		return netip.MustParsePrefix("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120")
	}
	return netip.MustParsePrefix("255.255.255.0/24")
}

// filled is a set with elements.
type filled struct {
	set      nft.Set
	elements []nft.Element
}

// everySet is one set of every shape and kind of data, with awkward elements.
func everySet(f nft.Family) map[string]filled {
	a, b := addr(f, 1), addr(f, 2)
	port := func(a netip.Addr, protocol uint8, port uint16) nft.Element {
		return nft.Element{Addr: a, Protocol: protocol, Port: port}
	}
	with := func(e nft.Element, n netip.Prefix) nft.Element {
		e.Net = n
		return e
	}
	to := func(e nft.Element, v nft.Verdict) nft.Element {
		e.Verdict = v
		return e
	}
	dest := port(a, nft.TCP, 80)
	dest.To = netip.AddrPortFrom(addr(f, 9), 8080)
	return map[string]filled{
		"addresses": {nft.Set{Shape: nft.Addr}, []nft.Element{{Addr: a}, {Addr: end(f).Addr()}}},
		"services": {nft.Set{Shape: nft.AddrPort}, []nft.Element{
			port(a, nft.TCP, 80), port(a, nft.TCP, 65535), port(b, nft.UDP, 53), port(b, nft.SCTP, 38412), port(b, 136, 9), port(b, nft.TCP, 0),
		}},
		"hairpin": {nft.Set{Shape: nft.AddrPortAddr}, []nft.Element{with(port(a, nft.TCP, 80), single(a)), with(port(a, nft.TCP, 80), single(b))}},
		"sources": {nft.Set{Shape: nft.AddrPortNet}, []nft.Element{
			with(port(a, nft.TCP, 80), prefix(f, 1)), with(port(a, nft.TCP, 80), single(b)), with(port(a, nft.TCP, 80), end(f)),
			with(port(b, nft.UDP, 53), all(f)),
		}},
		"networks":  {nft.Set{Shape: nft.Net}, []nft.Element{{Net: prefix(f, 1)}, {Net: prefix(f, 2)}, {Net: single(addr(f, 7))}, {Net: end(f)}}},
		"anywhere":  {nft.Set{Shape: nft.Net}, []nft.Element{{Net: all(f)}}},
		"ports":     {nft.Set{Shape: nft.Port}, []nft.Element{{Port: 30000}, {Port: 32767}}},
		"nodeports": {nft.Set{Shape: nft.ProtocolPort}, []nft.Element{{Protocol: nft.TCP, Port: 30000}, {Protocol: nft.UDP, Port: 30000}}},
		"held":      {nft.Set{Shape: nft.AddrPort, Timeout: 90 * time.Second}, nil},
		"decisions": {nft.Set{Shape: nft.AddrPort, Data: nft.Verdicts}, []nft.Element{
			to(port(a, nft.TCP, 80), nft.Goto("leaf")), to(port(a, nft.TCP, 81), nft.Jump("leaf")), to(port(a, nft.TCP, 82), nft.Drop),
			to(port(a, nft.TCP, 83), nft.Accept), to(port(a, nft.TCP, 84), nft.Return),
		}},
		"detours": {nft.Set{Shape: nft.AddrPort, Data: nft.Destinations}, []nft.Element{dest}},
	}
}

// everyChain has every statement, in the ways that change its text or its expressions.
func everyChain(f nft.Family) map[string]nft.Chain {
	toService := nft.By(nft.DestinationAddr, nft.Protocol, nft.DestinationPort)
	toAndFrom := nft.By(nft.DestinationAddr, nft.Protocol, nft.DestinationPort, nft.SourceAddr)
	tcp := nft.MatchProtocol{Protocol: nft.TCP}
	echo, ping := nft.MatchICMP{Type: nft.EchoRequest}, nft.MatchProtocol{Protocol: nft.ICMP}
	if f == nft.IPv6 {
		echo, ping = nft.MatchICMP{Type: nft.EchoRequestV6}, nft.MatchProtocol{Protocol: nft.ICMPv6}
	}
	const bit, other = 1 << 14, 1 << 20
	matches := []nft.Rule{
		nft.NewRule(nft.MatchAddr{Field: nft.SourceAddr, Net: prefix(f, 3)}, nft.Return).With("not from there"),
		nft.NewRule(nft.MatchAddr{Field: nft.SourceAddr, Net: netip.PrefixFrom(prefix(f, 3).Addr(), 8).Masked()}, nft.Return),
		nft.NewRule(nft.MatchAddr{Field: nft.DestinationAddr, Net: netip.PrefixFrom(prefix(f, 2).Addr(), 15).Masked(), Not: true}, nft.Drop),
		nft.NewRule(nft.MatchAddr{Field: nft.DestinationAddr, Net: single(addr(f, 1))}, nft.Accept),
		nft.NewRule(nft.MatchAddr{Field: nft.SourceAddr, Net: single(addr(f, 1)), Not: true}, nft.Accept),
		nft.NewRule(nft.MatchSet{Key: toService, Set: "services"}, nft.Jump("leaf")),
		nft.NewRule(nft.MatchSet{Key: toService, Set: "services", Not: true}, nft.Goto("leaf")),
		nft.NewRule(nft.MatchSet{Key: nft.By(nft.SourceAddr, nft.Protocol, nft.DestinationPort), Set: "held"}, nft.Accept),
		nft.NewRule(nft.MatchSet{Key: nft.By(nft.SourceAddr, nft.Protocol, nft.SourcePort), Set: "held"}, nft.Accept),
		nft.NewRule(nft.MatchSet{Key: toAndFrom, Set: "hairpin"}, nft.Accept),
		nft.NewRule(nft.MatchSet{Key: toAndFrom, Set: "sources", Not: true}, nft.Accept),
		nft.NewRule(nft.MatchSet{Key: nft.By(nft.DestinationAddr), Set: "addresses"}, nft.Accept),
		nft.NewRule(nft.MatchSet{Key: nft.By(nft.SourceAddr), Set: "networks", Not: true}, nft.Accept),
		nft.NewRule(nft.MatchSet{Key: nft.By(nft.DestinationPort), Set: "ports"}, nft.Accept),
		nft.NewRule(tcp, nft.MatchSet{Key: nft.By(nft.DestinationPort), Set: "ports"}, nft.Accept),
		nft.NewRule(nft.MatchProtocol{Protocol: nft.UDP}, nft.MatchSet{Key: nft.By(nft.SourceAddr), Set: "addresses"}, nft.MatchSet{Key: nft.By(nft.DestinationPort), Set: "ports", Not: true}, nft.Accept),
		nft.NewRule(nft.MatchProtocol{Protocol: nft.SCTP}, nft.MatchSet{Key: nft.By(nft.DestinationAddr), Set: "addresses"}, nft.Accept),
		nft.NewRule(tcp, nft.MatchSet{Key: toService, Set: "services"}, nft.Accept),
		nft.NewRule(nft.MatchSet{Key: nft.By(nft.Protocol, nft.DestinationPort), Set: "nodeports"}, nft.Accept),
		nft.NewRule(nft.MatchProtocol{Protocol: nft.TCP, Not: true}, nft.Return),
		nft.NewRule(nft.MatchProtocol{Protocol: 47}, nft.Return),
		nft.NewRule(ping, echo, nft.Return),
		nft.NewRule(nft.MatchState{States: nft.StateNew}, nft.Accept),
		nft.NewRule(nft.MatchState{States: nft.StateNew, Not: true}, nft.Accept),
		nft.NewRule(nft.MatchState{States: nft.StateRelated | nft.StateEstablished}, nft.Accept),
		nft.NewRule(nft.MatchState{States: nft.StateRelated | nft.StateEstablished, Not: true}, nft.Accept),
		nft.NewRule(nft.MatchState{States: nft.StateInvalid | nft.StateUntracked | nft.StateNew}, nft.Accept),
		nft.NewRule(nft.MatchStatus{Status: nft.StatusDNAT}, nft.Accept),
		nft.NewRule(nft.MatchStatus{Status: nft.StatusDNAT, Not: true}, nft.Accept),
		nft.NewRule(nft.MatchStatus{Status: nft.StatusSNAT | nft.StatusDNAT}, nft.Accept),
		nft.NewRule(nft.MatchMark{Value: bit, Mask: bit}, nft.Accept),
		nft.NewRule(nft.MatchMark{Value: bit, Mask: bit, Not: true}, nft.Accept),
		nft.NewRule(nft.MatchMark{Mask: bit | other}, nft.Accept),
		nft.NewRule(nft.MatchMark{Value: other, Mask: 1<<32 - 1}, nft.Accept),
		nft.NewRule(nft.SetMarkBits(bit, bit)),
		nft.NewRule(nft.SetMarkBits(bit, 0)),
		nft.NewRule(nft.SetMarkBits(0, bit)),
		nft.NewRule(nft.SetMarkBits(bit, bit|other)),
		nft.NewRule(nft.SetMark{Flip: bit}),
		nft.NewRule(nft.MatchLocal{Field: nft.SourceAddr}, nft.Accept),
		nft.NewRule(nft.MatchLocal{Field: nft.DestinationAddr, Not: true}, nft.Accept),
		nft.NewRule(nft.MatchInterface{Name: "cbr0"}, nft.Accept),
		nft.NewRule(nft.MatchInterface{Name: "veth*", Not: true}, nft.Accept),
		nft.NewRule(nft.MatchInterface{Name: "abcdefghijklmno", Out: true}, nft.Accept),
		nft.NewRule(nft.VerdictMap{Key: toService, Map: "decisions"}),
		nft.NewRule(nft.Counter{}, nft.Reject{}).With(`it's "KUBE"`[:5] + "KUBE"),
	}
	segments := []nft.Rule{
		nft.NewRule(tcp, nft.MatchTCPFlags{Value: nft.FlagSYN | nft.FlagACK, Mask: nft.FlagSYN | nft.FlagACK}, nft.MatchMSS{From: 1240, To: 1319}, nft.SetMSS{Size: 1208}),
		nft.NewRule(tcp, nft.MatchTCPFlags{Value: nft.FlagSYN, Mask: nft.FlagSYN | nft.FlagRST | nft.FlagFIN}, nft.SetMSS{Size: 1208}),
	}
	return map[string]nft.Chain{
		"leaf":              {},
		"filter-INPUT":      {Base: nft.FilterInput, Rules: matches},
		"filter-FORWARD":    {Base: nft.FilterForward},
		"mangle-PREROUTING": {Base: nft.ManglePrerouting},
		"mangle-FORWARD":    {Base: nft.MangleForward, Rules: segments},
		"mangle-OUTPUT":     {Base: nft.MangleOutput},
		"nat-PREROUTING":    {Base: nft.NATPrerouting, Rules: []nft.Rule{nft.NewRule(nft.DestinationMap{Key: toService, Map: "detours"}), nft.NewRule(nft.MatchSet{Key: toService, Set: "services"}, nft.KeepDestination{})}},
		"nat-OUTPUT":        {Base: nft.NATOutput, Rules: []nft.Rule{nft.NewRule(nft.KeepDestination{})}},
		"nat-POSTROUTING": {Base: nft.NATPostrouting, Rules: []nft.Rule{
			nft.NewRule(tcp, nft.Masquerade{From: 1024, To: 29999, Random: true}),
			nft.NewRule(tcp, nft.Masquerade{From: 32768, To: 65535}),
			nft.NewRule(nft.Masquerade{Random: true}),
			nft.NewRule(nft.Masquerade{}),
		}},
	}
}

// Everything is a pass that creates all of that, of some families.
func Everything(families ...nft.Family) (p nft.Pass) {
	for _, f := range families {
		p.Tables = append(p.Tables, nft.TableChange{Op: nft.Add, Family: f})
		for name, s := range everySet(f) {
			k := nft.Key{Family: f, Name: name}
			p.Sets = append(p.Sets, nft.SetChange{Op: nft.Add, Key: k, Set: s.set})
			for _, e := range s.elements {
				p.Elements = append(p.Elements, nft.ElementChange{Op: nft.Add, Key: k, Set: s.set, Element: e})
			}
		}
		for name, c := range everyChain(f) {
			p.Chains = append(p.Chains, nft.ChainChange{Op: nft.Add, Key: nft.Key{Family: f, Name: name}, Chain: c})
		}
	}
	return p
}
