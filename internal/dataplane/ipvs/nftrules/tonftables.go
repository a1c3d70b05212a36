package nftrules

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// This file renders rules and headers of sets for nftables.

// chain is a chain as nftables has it: its rules, and what the map of its detours has.
type chain struct {
	rules   []nft.Rule
	detours []nft.Element
}

// detourMap is the header of the map of a chain with detours.
var detourMap = nft.Set{Shape: nft.AddrPort, Data: nft.Destinations}

// byDestination are the fields of a packet that say where it goes.
var byDestination = nft.By(nft.DestinationAddr, nft.Protocol, nft.DestinationPort)

// lowerSet returns the header of a set of ipset.
func lowerSet(s ipset.Set) nft.Set {
	return nft.Set{Shape: shapes[s.Type], Timeout: time.Duration(s.Timeout) * time.Second}
}

// lowerChain renders the rules of a chain.
func lowerChain(k rules.ChainKey, content netfilter.Chain) (out chain, err error) {
	for r := range content.Rules(k.Family) {
		if _, ok := r.Target.(netfilter.DNAT); ok {
			e, ok := lowerDetour(r)
			if !ok {
				return chain{}, unsupported(k, r, "a detour has an address, a protocol and a port")
			}
			out.detours = append(out.detours, e)
			continue
		}
		rule, err := lowerRule(k, r)
		if err != nil {
			return chain{}, err
		}
		out.rules = append(out.rules, rule)
	}
	if len(out.detours) == 0 {
		return out, nil
	}
	if len(out.rules) > 0 {
		return chain{}, fmt.Errorf("chain %s: %w in nftables: it has detours and other rules", k, rules.ErrUnsupported)
	}
	out.rules = []nft.Rule{detourRule(k)}
	return out, nil
}

// detourRule is the only rule of a chain with detours.
func detourRule(k rules.ChainKey) nft.Rule {
	return nft.NewRule(nft.DestinationMap{Key: byDestination, Map: chainKey(k).Name})
}

// lowerDetour renders a rule that leads what is for one address and port to another.
func lowerDetour(r netfilter.Rule) (e nft.Element, ok bool) {
	to, _ := r.Target.(netfilter.DNAT)
	e.To = netip.AddrPort(to)
	for _, m := range r.Match {
		switch m := m.(type) {
		case netfilter.Destination:
			if !netip.Prefix(m).IsSingleIP() {
				return e, false
			}
			e.Addr = netip.Prefix(m).Addr()
		case netfilter.Protocol:
			e.Protocol = uint8(m)
		case netfilter.DestinationPort:
			e.Port = m.Port
		default:
			return e, false
		}
	}
	return e, e.Addr.IsValid() && e.Protocol != 0 && e.Port != 0
}

// unsupported is the error of a rule that cannot be expressed.
func unsupported(k rules.ChainKey, r netfilter.Rule, why string) error {
	return fmt.Errorf("chain %s: rule %q: %w in nftables: %s", k, netfilter.NewLine(k.Family, r), rules.ErrUnsupported, why)
}

// lowerRule renders one rule of a chain, but for detours.
func lowerRule(k rules.ChainKey, r netfilter.Rule) (nft.Rule, error) {
	l := lowering{chain: k}
	for _, m := range r.Match {
		if why := l.match(m); why != "" {
			return nft.Rule{}, unsupported(k, r, why)
		}
	}
	if why := l.target(r.Target); why != "" {
		return nft.Rule{}, unsupported(k, r, why)
	}
	out := nft.NewRule(l.out...).With(r.Comment())
	if netfilter.NewLine(k.Family, raiseRule(k, out)) != netfilter.NewLine(k.Family, r) {
		return nft.Rule{}, unsupported(k, r, "it would read as another rule")
	}
	return out, nil
}

// lowering is one rule on its way. Its methods return why something cannot be expressed.
type lowering struct {
	chain    rules.ChainKey
	protocol bool // a condition names the protocol
	out      []nft.Statement
}

func (l *lowering) add(s ...nft.Statement) string {
	l.out = append(l.out, s...)
	return ""
}

func (l *lowering) match(m netfilter.Match) (why string) {
	condition, not := m, false
	if n, ok := m.(netfilter.Not); ok {
		condition, not = n.Match, true
	}
	switch c := condition.(type) {
	case netfilter.Comment:
		return ""
	case netfilter.Source:
		return l.add(nft.MatchAddr{Field: nft.SourceAddr, Net: netip.Prefix(c), Not: not})
	case netfilter.Destination:
		return l.add(nft.MatchAddr{Field: nft.DestinationAddr, Net: netip.Prefix(c), Not: not})
	case netfilter.Input:
		return l.add(nft.MatchInterface{Name: interfaces(c), Not: not})
	case netfilter.Protocol:
		l.protocol = !not
		return l.add(nft.MatchProtocol{Protocol: uint8(c), Not: not})
	case netfilter.InSet:
		return l.set(c, not)
	case netfilter.State:
		return l.state(c, not)
	case netfilter.Local:
		return l.add(nft.MatchLocal{Field: addrOf(netfilter.Direction(c)), Not: not})
	case netfilter.Mark:
		return l.add(nft.MatchMark{Value: c.Value, Mask: c.Mask, Not: not})
	}
	if not {
		return "a condition has no opposite"
	}
	return l.transport(condition)
}

// transport adds conditions on what is above IP.
func (l *lowering) transport(m netfilter.Match) (why string) {
	switch m := m.(type) {
	case netfilter.ICMPType:
		return l.add(nft.MatchICMP{Type: uint8(m)})
	case netfilter.TCPFlags:
		return l.add(nft.MatchTCPFlags{Value: uint8(m.Set), Mask: uint8(m.Of)})
	case netfilter.SegmentSize:
		return l.add(nft.MatchMSS{From: m.From, To: m.To})
	}
	return fmt.Sprintf("no statement for a condition of type %T", m)
}

// interfaces is the name of an interface, or how names begin.
func interfaces(i netfilter.Input) string {
	if i.Prefix {
		return i.Name + "*"
	}
	return i.Name
}

func addrOf(d netfilter.Direction) nft.Field {
	if d == netfilter.Src {
		return nft.SourceAddr
	}
	return nft.DestinationAddr
}

func portOf(d netfilter.Direction) nft.Field {
	if d == netfilter.Src {
		return nft.SourcePort
	}
	return nft.DestinationPort
}

// dimensions are the fields of a set of each shape as rules name them, one direction each.
var dimensions = map[nft.Shape][]func(netfilter.Direction) nft.Field{
	nft.Addr:         {addrOf},
	nft.AddrPort:     {addrOf, portOf},
	nft.AddrPortAddr: {addrOf, portOf, addrOf},
	nft.AddrPortNet:  {addrOf, portOf, addrOf},
	nft.Port:         {portOf},
}

func (l *lowering) set(m netfilter.InSet, not bool) (why string) {
	p, known := purposes[m.Name]
	if !known || p.family != families[l.chain.Family] {
		return "no set of ours has that name"
	}
	list := dimensions[p.set.Shape]
	by := m.By[:]
	if i := slices.Index(by, 0); i >= 0 {
		by = by[:i]
	}
	if len(by) != len(list) {
		return "the set has another number of dimensions"
	}
	var fields []nft.Field
	for i, field := range list {
		if fields = append(fields, field(by[i])); i == 0 && len(list) > 1 {
			fields = append(fields, nft.Protocol)
		}
	}
	if p.set.Shape == nft.Port && !l.protocol {
		if p.protocol == 0 {
			return "a set of ports without a protocol"
		}
		l.add(nft.MatchProtocol{Protocol: p.protocol})
	}
	return l.add(nft.MatchSet{Key: nft.By(fields...), Set: m.Name, Not: not})
}

// states are those of connection tracking that nftables has as such.
var states = map[netfilter.State]nft.State{
	netfilter.Invalid: nft.StateInvalid, netfilter.New: nft.StateNew, netfilter.Related: nft.StateRelated,
	netfilter.Established: nft.StateEstablished, netfilter.Untracked: nft.StateUntracked,
}

// statuses are those that nftables has as properties of a connection.
var statuses = map[netfilter.State]nft.Status{netfilter.SNATed: nft.StatusSNAT, netfilter.DNATed: nft.StatusDNAT}

func (l *lowering) state(s netfilter.State, not bool) (why string) {
	if status, ok := statuses[s]; ok {
		return l.add(nft.MatchStatus{Status: status, Not: not})
	}
	var of nft.State
	for one, bit := range states {
		if s&one != 0 {
			of |= bit
			s &^= one
		}
	}
	if s != 0 {
		return "states and translations in one condition"
	}
	return l.add(nft.MatchState{States: of, Not: not})
}

// verdicts are those of nftables.
var verdicts = map[netfilter.Verdict]nft.Verdict{netfilter.Accept: nft.Accept, netfilter.Drop: nft.Drop, netfilter.Return: nft.Return}

func (l *lowering) target(t netfilter.Target) (why string) {
	switch t := t.(type) {
	case netfilter.JumpTo:
		return l.add(nft.Jump(named(l.chain.Family, l.chain.Table, string(t)).Name))
	case netfilter.Verdict:
		switch {
		case t == netfilter.Accept && l.chain.Table == "nat":
			return l.add(nft.KeepDestination{})
		case t == netfilter.Drop:
			return l.add(nft.Counter{}, nft.Drop)
		}
		return l.add(verdicts[t])
	case netfilter.Reject:
		return l.add(nft.Counter{}, nft.Reject{})
	case netfilter.SetMark:
		return l.add(nft.SetMarkBits(t.Value, t.Mask))
	case netfilter.SNAT:
		return l.add(nft.Masquerade{From: t.Ports.First, To: t.Ports.Last, Random: t.Random})
	case netfilter.SetSegmentSize:
		return l.add(nft.SetMSS{Size: uint16(t)})
	}
	return fmt.Sprintf("no statement for a target of type %T", t)
}
