package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// candidate is an endpoint together with the target port that its slice gives
// to one port of the Service.
type candidate struct {
	addr  netip.AddrPort
	ep    *model.Endpoint
	slice *model.Slice
}

// endpoints counts what is listed behind the Service, in all families: no port
// has more candidates.
func (j *compilation) endpoints() int {
	n := 0
	for i := range j.slices {
		if j.slices[i].Service == j.id {
			n += len(j.slices[i].Endpoints)
		}
	}
	return n
}

// join collects the endpoints of one family behind one port of the Service, sorted by address and
// unique. Slices are joined by the name and protocol of the port, each with its own port number.
// Pods may resolve one named target port differently, and such pods are in different slices. The
// result is good until the next call.
func (j *compilation) join(family model.Family, port model.ServicePort) []candidate {
	out := j.scratch[:0]
	for _, t := range j.targetsOf(family, port) {
		for i := range t.slice.Endpoints {
			if ep := &t.slice.Endpoints[i]; unfit(ep.Addr, family) == "" {
				out = append(out, candidate{addr: netip.AddrPortFrom(ep.Addr, t.port), ep: ep, slice: t.slice})
			}
		}
	}
	j.scratch = unique(out)
	return j.scratch
}

// target is a port of a slice, under what a port of the Service finds it by.
type target struct {
	family   model.Family
	name     string
	protocol model.Protocol
	slice    *model.Slice
	port     uint16
}

func (t target) compare(o target) int {
	return cmp.Or(cmp.Compare(t.family, o.family), cmp.Compare(t.name, o.name), cmp.Compare(t.protocol, o.protocol))
}

// targetsOf are the slices' ports behind one of the Service, in the order of the slices.
func (j *compilation) targetsOf(family model.Family, port model.ServicePort) []target {
	if j.targets == nil {
		j.findTargets()
	}
	want := target{family: family, name: port.Name, protocol: port.Protocol}
	from, there := slices.BinarySearchFunc(j.targets, want, target.compare)
	if !there {
		return nil
	}
	to := from
	for to < len(j.targets) && j.targets[to].compare(want) == 0 {
		to++
	}
	return j.targets[from:to]
}

// findTargets sorts the slices' ports, and notes the endpoints whose address no packet can be
// sent to. A slice port without a number means every port, which no Service port can mean.
func (j *compilation) findTargets() {
	j.targets = make([]target, 0, len(j.slices))
	for i := range j.slices {
		s := &j.slices[i]
		if s.Service != j.id {
			continue
		}
		for _, p := range s.Ports {
			if p.Port != 0 {
				j.targets = append(j.targets, target{s.Family, p.Name, p.Protocol, s, p.Port})
			}
		}
		for _, ep := range s.Endpoints {
			if why := unfit(ep.Addr, s.Family); why != "" {
				j.notes.addf(model.EndpointRefused, "endpoint %s of EndpointSlice %s is not used: %s", ep.Addr, s.ID, why)
			}
		}
	}
	slices.SortStableFunc(j.targets, target.compare)
}

// unfit reports why an endpoint address cannot be used, empty if it can.
func unfit(addr netip.Addr, family model.Family) string {
	if why := special(addr); why != "" {
		return why
	}
	if model.FamilyOf(addr) != family {
		return "not an " + family.String() + " address"
	}
	return ""
}

// unique sorts candidates and keeps the strongest of each address, in place.
// An address is listed twice while a pod moves between slices, and when a new
// pod takes over the address of a terminating one.
func unique(all []candidate) []candidate {
	slices.SortFunc(all, candidate.compare)
	return slices.CompactFunc(all, func(a, b candidate) bool { return a.addr == b.addr })
}

// compare orders candidates by address, and those of one address by strength.
func (c candidate) compare(o candidate) int {
	if order := c.addr.Compare(o.addr); order != 0 {
		return order
	}
	return c.compareStrength(o)
}

// compareStrength decides which of two entries for one address is used. An entry that is not
// terminating wins, as in kube-proxy, where a running pod beats a terminating one. Then a ready one
// wins, then a serving one, then the one in the later slice. The rest only makes the order total,
// so that the input's order cannot show.
func (c candidate) compareStrength(o candidate) int {
	a, b := c.ep, o.ep
	if order := cmp.Or(
		trueFirst(!a.Terminating, !b.Terminating),
		trueFirst(a.Ready, b.Ready),
		trueFirst(a.Serving, b.Serving),
	); order != 0 {
		return order
	}
	return cmp.Or(
		cmp.Compare(o.slice.ID.Name, c.slice.ID.Name),
		cmp.Compare(a.Node, b.Node),
		slices.Compare(a.ZoneHints(), b.ZoneHints()),
		slices.Compare(a.NodeHints(), b.NodeHints()),
	)
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
