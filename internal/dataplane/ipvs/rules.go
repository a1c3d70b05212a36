package ipvs

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// The chains of this mode.
const (
	chainServices     = netfilter.ChainServices
	chainPostrouting  = netfilter.ChainPostrouting
	chainNodePort     = netfilter.ChainNodePort
	chainLoadBalancer = netfilter.ChainLoadBalancer
	chainMarkMasq     = netfilter.ChainMarkMasq
	chainForward      = netfilter.ChainForward
	chainFirewall     = netfilter.ChainFirewall
	chainSourceRanges = netfilter.ChainSourceRanges
	chainFilter       = netfilter.ChainFilter
	chainOutFilter    = netfilter.ChainOutFilter
	chainDetour       = netfilter.ChainDetour
	chainDetourTo     = netfilter.ChainDetourTo
	chainDetourSCTP   = netfilter.ChainDetourSCTP
	chainAccept       = netfilter.ChainAccept
	chainDirect       = netfilter.ChainDirect
	chainDirectMSS    = netfilter.ChainDirectMSS
	chainCapture      = netfilter.ChainCapture
)

// jumps are kube-proxy's, in its order, and our own.
var jumps = netfilter.Jumps{
	{Table: "nat", Hook: "OUTPUT", Target: chainServices, Comment: "kubernetes service portals"},
	{Table: "nat", Hook: "PREROUTING", Target: chainServices, Comment: "kubernetes service portals"},
	{Table: "nat", Hook: "POSTROUTING", Target: chainPostrouting, Comment: "kubernetes postrouting rules"},
	{Table: "filter", Hook: "FORWARD", Target: chainForward, Comment: "kubernetes forwarding rules"},
	{Table: "filter", Hook: "FORWARD", Target: chainCapture, Comment: "kubernetes captured ports"},
	{Table: "filter", Hook: "INPUT", Target: chainNodePort, Comment: "kubernetes health check rules"},
	{Table: "filter", Hook: "INPUT", Target: chainFirewall, Comment: "kube-proxy firewall rules"},
	{Table: "filter", Hook: "FORWARD", Target: chainFirewall, Comment: "kube-proxy firewall rules"},
	{Table: "filter", Hook: "INPUT", Target: chainFilter, Comment: "kubernetes ipvs access filter"},
	{Table: "filter", Hook: "OUTPUT", Target: chainOutFilter, Comment: "kubernetes ipvs access filter"},
	{Table: "mangle", Hook: "OUTPUT", Target: chainOutFilter, Comment: "kubernetes ipvs access filter"},
	{Table: "mangle", Hook: "PREROUTING", Target: chainDirect, Comment: "kubernetes direct server return"},
	{Table: "mangle", Hook: "FORWARD", Target: chainDirectMSS, Comment: "kubernetes direct server return"},
	{Table: "mangle", Hook: "PREROUTING", Target: chainCapture, Comment: "kubernetes captured ports"},
	{Table: "filter", Hook: "INPUT", Target: chainAccept, Comment: "kubernetes service traffic", Last: true},
}

// ruleWriter collects the rules of one family.
type ruleWriter struct {
	family model.Family
	chains map[netfilter.ChainKey]netfilter.Chain
	ranges []netip.Prefix // local as a whole, of this family
}

// extras are the chains of a family that are there while some address needs them.
type extras struct {
	direct  bool // backends answer from it themselves
	capture bool // ports of it are captured
}

// has reports whether a chain is wanted: those that are always there are.
func (e extras) has(k netfilter.ChainKey) bool {
	switch {
	case isDirectChain(k):
		return e.direct
	case isCaptureChain(k):
		return e.capture
	}
	return true
}

func (w ruleWriter) chain(table, name string, list ...netfilter.Rule) {
	k := netfilter.Key(w.family, table, name)
	w.chains[k] = netfilter.NewChain(k.Family, list...)
}

// The ends of a packet that sets are asked for.
var (
	src        = netfilter.Fields{netfilter.Src}
	srcDst     = netfilter.Fields{netfilter.Src, netfilter.Dst}
	dst        = netfilter.Fields{netfilter.Dst}
	dstPort    = netfilter.Fields{netfilter.Dst, netfilter.Dst}
	dstPortSrc = netfilter.Fields{netfilter.Dst, netfilter.Dst, netfilter.Src}
)

// in matches the entries of a set.
func (w ruleWriter) in(set string, by netfilter.Fields) netfilter.Match {
	return netfilter.InSet{Name: sets.Name(w.family, set), By: by}
}

// notIn matches what in does not.
func (w ruleWriter) notIn(set string, by netfilter.Fields) netfilter.Match {
	return netfilter.Not{Match: w.in(set, by)}
}

// commented matches a set, with the comment that kube-proxy gives such rules.
func (w ruleWriter) commented(set string, by netfilter.Fields) netfilter.Match {
	return netfilter.All{setComment(set), w.in(set, by)}
}

func setComment(set string) netfilter.Match {
	if text := sets.Comment(set); text != "" {
		return netfilter.Comment(text)
	}
	return nil
}

// baseRules renders all chains of a family but the one of the detours. They do
// not depend on how many Services there are: rules refer to sets. During a takeover there
// is one more. Ranges that are local as a whole have rules of their own, and so have
// addresses from which others answer and those with captured ports.
func (c Config) baseRules(f model.Family, node model.Node, takeover bool, ranges []netip.Prefix, more extras) map[netfilter.ChainKey]netfilter.Chain {
	w := ruleWriter{family: f, chains: map[netfilter.ChainKey]netfilter.Chain{}, ranges: ofFamily(f, ranges)}
	c.natRules(w, node)
	c.postrouting(w, takeover)
	c.detourRules(w, node)
	c.filterRules(w)
	c.accessRules(w)
	outputRules(w)
	if more.direct {
		c.directRules(w)
	}
	if more.capture {
		c.captureRules(w)
	}
	return w.chains
}
