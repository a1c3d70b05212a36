package chains

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// ruleWriter collects the rules of one family.
type ruleWriter struct {
	family model.Family
	chains map[netfilter.ChainKey]netfilter.Chain
	ranges []netip.Prefix // local as a whole, of this family
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

// Config are the settings that rules depend on.
type Config struct {
	Families []model.Family
	// MasqueradeAll rewrites the source of all traffic to cluster IPs.
	MasqueradeAll bool
	Masquerade    netfilter.Masquerade
	// Local tells pods of this node from other clients.
	Local netfilter.LocalPods
}

// State is what rules depend on besides the settings.
type State struct {
	Node model.Node
	// Takeover: rules of another proxy mode still carry Services (masqueradeVIPs).
	Takeover bool
	// Ranges are local as a whole.
	Ranges []netip.Prefix
	// Needs returns the extras of a family.
	Needs func(model.Family) Extras
}

// base renders all chains of a family but those of detours. They refer to sets, so they do not
// depend on how many Services there are.
func (c Config) base(f model.Family, s State) map[netfilter.ChainKey]netfilter.Chain {
	w := ruleWriter{family: f, chains: map[netfilter.ChainKey]netfilter.Chain{}, ranges: ofFamily(f, s.Ranges)}
	c.natRules(w, s.Node)
	c.postrouting(w, s.Takeover)
	c.detourRules(w, s.Node)
	c.filterRules(w)
	c.accessRules(w)
	outputRules(w)
	needs := s.Needs(f)
	if needs.Direct {
		c.directRules(w)
	}
	if needs.Capture {
		c.captureRules(w)
	}
	return w.chains
}

// ofFamily returns the ranges of a family.
func ofFamily(f model.Family, ranges []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(ranges), func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) != f })
}
