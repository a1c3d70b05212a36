package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// limit reads spec.loadBalancerSourceRanges into the families they are for. Each family has
// its own bound: a family without a range would be open to all clients.
func (j *compilation) limit() {
	for _, f := range model.Families() {
		s := j.family(f)
		s.ranges = rangesOf(j.svc.SourceRanges, f)
		if most := j.opts.MaxRanges; len(s.ranges) > most {
			j.beyond.SourceRanges += len(s.ranges) - most
			s.ranges = s.ranges[:most]
		}
		s.ownNode = slices.ContainsFunc(ownAddresses(j.opts.Host), func(a netip.Addr) bool { return inside(s.ranges, a) })
	}
}

// rangesOf returns the ranges of one family. A range of length 0 empties the list, which
// opens the family to all clients, as in kube-proxy.
func rangesOf(all []netip.Prefix, f model.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range all {
		switch {
		case model.FamilyOf(p.Addr()) != f:
		case p.Bits() == 0:
			return nil
		default:
			out = append(out, p)
		}
	}
	return out
}

// ownAddresses are the addresses by which this node comes to a load-balancer
// address: those of its Node, or all it has where no Node lists any.
func ownAddresses(h model.Host) []netip.Addr {
	if len(h.Node.Addresses) > 0 {
		return h.Node.Addresses
	}
	return slices.Collect(maps.Keys(h.Links))
}

// inside reports whether one of the networks holds the address.
func inside(nets []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(a) })
}
