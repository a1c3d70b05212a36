package nftrules

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// networks are those of one address, protocol and port.
type networks map[netip.Prefix]struct{}

// ranges are the networks of one set. The kernel has those that no other one of the same address,
// protocol and port contains; the others count as being in place, too.
type ranges struct {
	loaded bool
	wanted map[nft.Element]networks // by the element without its network
	placed map[nft.Element]networks // elements in the kernel
}

// rangesOf returns the networks of a set.
func (b *Backend) rangesOf(name string) *ranges {
	r := b.ranges[name]
	if r == nil {
		r = &ranges{wanted: map[nft.Element]networks{}}
		b.ranges[name] = r
	}
	return r
}

// group returns the larger network to which only one of several disjoint networks can belong.
func group(e nft.Element) nft.Element {
	e.Net = netip.Prefix{}
	return e
}

func put(to map[nft.Element]networks, e nft.Element) {
	g := group(e)
	if to[g] == nil {
		to[g] = networks{}
	}
	to[g][e.Net] = struct{}{}
}

// with returns the elements of a group.
func with(g nft.Element, of networks) (out []nft.Element) {
	for n := range of {
		e := g
		e.Net = n
		out = append(out, e)
	}
	return out
}

// found takes what the kernel has, and returns it with the networks that count as being in place.
func (r *ranges) found(list []nft.Element) (out []nft.Element) {
	placed := map[nft.Element]networks{}
	for _, e := range list {
		put(placed, e)
	}
	wanted := map[nft.Element]networks{}
	for g, of := range placed {
		wanted[g] = maps.Clone(of)
		for n := range r.wanted[g] {
			if contained(n, of) {
				wanted[g][n] = struct{}{}
			}
		}
		out = append(out, with(g, wanted[g])...)
	}
	r.loaded, r.wanted, r.placed = true, wanted, placed
	return out
}

// contained reports whether one of some networks contains another one.
func contained(n netip.Prefix, in networks) bool {
	for c := range in {
		if c.Bits() <= n.Bits() && c.Contains(n.Addr()) {
			return true
		}
	}
	return false
}

// load reads the set unless its state is known. A set that does not exist has no networks.
func (r *ranges) load(ctx context.Context, kernel Kernel, k nft.Key) error {
	if r.loaded {
		return nil
	}
	_, list, err := kernel.Elements(ctx, k)
	if err != nil && !errors.Is(err, nft.ErrNotExist) {
		return err
	}
	r.found(list)
	return nil
}

// replaced takes the new content of the set, and returns the elements for the kernel.
func (r *ranges) replaced(list []nft.Element) (out []nft.Element) {
	r.loaded, r.wanted, r.placed = true, map[nft.Element]networks{}, map[nft.Element]networks{}
	for _, e := range list {
		put(r.wanted, e)
	}
	for g, of := range r.wanted {
		r.placed[g] = disjoint(of)
		out = append(out, with(g, r.placed[g])...)
	}
	return out
}

func disjoint(of networks) networks {
	out := networks{}
	for _, n := range nft.Disjoint(slices.Collect(maps.Keys(of))) {
		out[n] = struct{}{}
	}
	return out
}

// rangePlan is one write of a set with ranges.
type rangePlan struct {
	of      *ranges
	wanted  map[nft.Element]networks // of the groups that change
	changes map[nft.Element][]int
}

func (r *ranges) plan() *rangePlan {
	return &rangePlan{of: r, wanted: map[nft.Element]networks{}, changes: map[nft.Element][]int{}}
}

// change adds a change of a network.
func (p *rangePlan) change(i int, op ipset.Op, e nft.Element) {
	g := group(e)
	if p.wanted[g] == nil {
		p.wanted[g] = networks{}
		maps.Copy(p.wanted[g], p.of.wanted[g])
	}
	if op == ipset.OpDelete {
		delete(p.wanted[g], e.Net)
	} else {
		p.wanted[g][e.Net] = struct{}{}
	}
	p.changes[g] = append(p.changes[g], i)
}

// rangeRow is a row for the kernel, and the changes that it follows from.
type rangeRow struct {
	op      nft.Op
	element nft.Element
	changes []int
}

// rows returns what the kernel lacks, and what it has too much.
func (p *rangePlan) rows() (out []rangeRow) {
	for g, wanted := range p.wanted {
		now, had := disjoint(wanted), p.of.placed[g]
		add := func(op nft.Op, list, other networks) {
			for _, e := range with(g, list) {
				if _, both := other[e.Net]; !both {
					out = append(out, rangeRow{op, e, p.changes[g]})
				}
			}
		}
		add(nft.Delete, had, now)
		add(nft.Add, now, had)
	}
	slices.SortFunc(out, func(a, b rangeRow) int { return a.element.Compare(b.element) })
	return out
}

// done takes the new state, or after an error none: the set is read before the next write.
func (p *rangePlan) done(err error) {
	if err != nil {
		p.of.loaded = false
		return
	}
	for g, wanted := range p.wanted {
		p.of.wanted[g], p.of.placed[g] = wanted, disjoint(wanted)
		if len(wanted) == 0 {
			delete(p.of.wanted, g)
			delete(p.of.placed, g)
		}
	}
}
