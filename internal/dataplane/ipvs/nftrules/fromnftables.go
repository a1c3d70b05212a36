package nftrules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// This file reads rules back from nftables.

// raiseChain returns the rules of a chain. detours are the elements of its map, which is read only
// where the chain has the rule for it.
func raiseChain(k rules.ChainKey, list []nft.Rule, detours []nft.Element) netfilter.Chain {
	if hasDetours(k, list) {
		return raiseDetours(k, detours)
	}
	lines := make([]netfilter.Line, len(list))
	for i, r := range list {
		lines[i] = netfilter.NewLine(k.Family, raiseRule(k, r))
	}
	return netfilter.ChainOf(lines)
}

// hasDetours reports whether a chain consists of detours.
func hasDetours(k rules.ChainKey, list []nft.Rule) bool {
	return len(list) == 1 && list[0].Equal(detourRule(k))
}

func raiseDetours(k rules.ChainKey, list []nft.Element) netfilter.Chain {
	list = slices.SortedFunc(slices.Values(list), func(a, b nft.Element) int { // as model.FrontendKey has it
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	lines := make([]netfilter.Line, len(list))
	for i, e := range list {
		p := netfilter.Protocol(e.Protocol)
		r := netfilter.If(netfilter.DestinationIP(e.Addr), p, netfilter.DestinationPort{Protocol: p, Port: e.Port}).Then(netfilter.DNAT(e.To))
		lines[i] = netfilter.NewLine(k.Family, r)
	}
	return netfilter.ChainOf(lines)
}

// foreign is a rule that this package does not write, in the text of nftables.
func foreign(k rules.ChainKey, r nft.Rule) netfilter.Rule {
	text := strings.ReplaceAll(r.Text(families[k.Family]), "\n", " ")
	return netfilter.If(netfilter.Unknown("nft " + text))
}

// raiseRule returns the rule that a rule of nftables was rendered from.
func raiseRule(k rules.ChainKey, r nft.Rule) netfilter.Rule {
	if r.Foreign {
		return foreign(k, r)
	}
	up := raising{chain: k}
	if isCounted(r) != slices.Contains(r.Statements, nft.Statement(nft.Counter{})) {
		return foreign(k, r)
	}
	for i, s := range r.Statements {
		if s == (nft.Counter{}) || up.impliedProtocol(s, r.Statements[i+1:]) {
			continue
		}
		m, t := raiseMatch(s), raiseTarget(k, s)
		switch {
		case m != nil:
			up.match = append(up.match, m)
		case t != nil && i == len(r.Statements)-1:
			up.target = t
		default:
			return foreign(k, r)
		}
	}
	up.comment(r.Comment)
	return netfilter.If(up.match...).Then(up.target)
}

// isCounted reports whether a rule is one that counts the packets that it drops or refuses. Rules of older
// agents have no counter, so they are written again.
func isCounted(r nft.Rule) bool {
	n := len(r.Statements)
	if n == 0 {
		return false
	}
	last := r.Statements[n-1]
	return last == nft.Drop || last == (nft.Reject{})
}

// raising is one rule on its way.
type raising struct {
	chain  rules.ChainKey
	match  []netfilter.Match
	target netfilter.Target
}

// impliedProtocol reports whether a statement only names the protocol that the set behind it is for.
func (up *raising) impliedProtocol(s nft.Statement, behind []nft.Statement) bool {
	m, ok := s.(nft.MatchProtocol)
	if !ok || m.Not || len(behind) == 0 {
		return false
	}
	set, ok := behind[0].(nft.MatchSet)
	return ok && purposes[set.Set].protocol == m.Protocol
}

// comment puts a comment to its place: before the first match of a set, or else before the first
// condition that an extension of iptables tests.
func (up *raising) comment(text string) {
	if text == "" {
		return
	}
	at := slices.IndexFunc(up.match, isSet)
	if at < 0 {
		at = slices.IndexFunc(up.match, isExtension)
	}
	if at < 0 {
		at = len(up.match)
	}
	up.match = slices.Insert(up.match, at, netfilter.Match(netfilter.Comment(text)))
}

func plain(m netfilter.Match) netfilter.Match {
	if n, ok := m.(netfilter.Not); ok {
		return n.Match
	}
	return m
}

func isSet(m netfilter.Match) bool { _, ok := plain(m).(netfilter.InSet); return ok }

// isExtension reports whether iptables needs an extension to test a condition.
func isExtension(m netfilter.Match) bool {
	switch plain(m).(type) {
	case netfilter.Source, netfilter.Destination, netfilter.Input, netfilter.Protocol:
		return false
	}
	return true
}

// maybe returns a condition or its opposite.
func maybe(not bool, m netfilter.Match) netfilter.Match {
	if not {
		return netfilter.Not{Match: m}
	}
	return m
}

// raiseMatch returns the condition of a statement, nil where it is none.
func raiseMatch(s nft.Statement) netfilter.Match {
	switch s := s.(type) {
	case nft.MatchAddr:
		if s.Field == nft.SourceAddr {
			return maybe(s.Not, netfilter.Source(s.Net))
		}
		return maybe(s.Not, netfilter.Destination(s.Net))
	case nft.MatchInterface:
		return raiseInterface(s)
	case nft.MatchProtocol:
		return maybe(s.Not, netfilter.Protocol(s.Protocol))
	case nft.MatchSet:
		return maybe(s.Not, raiseSetMatch(s))
	case nft.MatchState:
		return maybe(s.Not, raiseState(s.States))
	case nft.MatchStatus:
		return maybe(s.Not, raiseStatus(s.Status))
	case nft.MatchLocal:
		return maybe(s.Not, netfilter.Local(directionOf(s.Field)))
	case nft.MatchMark:
		return maybe(s.Not, netfilter.Mark{Value: s.Value, Mask: s.Mask})
	case nft.MatchICMP:
		return netfilter.ICMPType(s.Type)
	case nft.MatchTCPFlags:
		return netfilter.TCPFlags{Of: netfilter.TCPFlag(s.Mask), Set: netfilter.TCPFlag(s.Value)}
	case nft.MatchMSS:
		return netfilter.SegmentSize{From: s.From, To: s.To}
	}
	return nil
}

// raiseInterface returns nil for interfaces by which packets leave, which no rule of ours names.
func raiseInterface(s nft.MatchInterface) netfilter.Match {
	if s.Out {
		return nil
	}
	name, prefix := strings.CutSuffix(s.Name, "*")
	return maybe(s.Not, netfilter.Input{Name: name, Prefix: prefix})
}

func directionOf(f nft.Field) netfilter.Direction {
	if f == nft.SourceAddr || f == nft.SourcePort {
		return netfilter.Src
	}
	return netfilter.Dst
}

func raiseSetMatch(s nft.MatchSet) netfilter.InSet {
	out, n := netfilter.InSet{Name: s.Set}, 0
	for _, f := range s.Key {
		if f != 0 && f != nft.Protocol && n < len(out.By) {
			out.By[n] = directionOf(f)
			n++
		}
	}
	return out
}

func raiseState(s nft.State) (out netfilter.State) {
	for one, bit := range states {
		if s&bit != 0 {
			out |= one
		}
	}
	return out
}

func raiseStatus(s nft.Status) (out netfilter.State) {
	for one, bit := range statuses {
		if s&bit != 0 {
			out |= one
		}
	}
	return out
}

// raiseTarget returns the target of a statement, nil where it is none.
func raiseTarget(k rules.ChainKey, s nft.Statement) netfilter.Target {
	switch s := s.(type) {
	case nft.Verdict:
		return raiseVerdict(k, s)
	case nft.KeepDestination:
		return netfilter.Accept
	case nft.Reject:
		return netfilter.Reject{}
	case nft.SetMark:
		return netfilter.SetMark{Value: s.Flip, Mask: ^s.Keep}
	case nft.Masquerade:
		return netfilter.SNAT{Ports: netfilter.PortRange{First: s.From, Last: s.To}, Random: s.Random}
	case nft.SetMSS:
		return netfilter.SetSegmentSize(s.Size)
	}
	return nil
}

func raiseVerdict(k rules.ChainKey, v nft.Verdict) netfilter.Target {
	if v.Kind == nft.VerdictJump {
		if to, ok := parseName(nft.Key{Family: families[k.Family], Name: v.Chain}); ok && to.Table == k.Table {
			return netfilter.JumpTo(to.Name)
		}
		return nil
	}
	for of, verdict := range verdicts {
		if verdict == v {
			return of
		}
	}
	return nil
}
