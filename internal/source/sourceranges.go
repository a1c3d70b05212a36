package source

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

const rangesField = "spec.loadBalancerSourceRanges"

// sourceRanges are the clients that a load balancer admits. As in kube-proxy, each family
// has its own list, and an empty list admits all clients.
type sourceRanges struct{ v4, v6 familyRanges }

type familyRanges struct {
	list []netip.Prefix
	// everybody: a network of length 0 is among them, the others mean nothing.
	everybody bool
	// spoilt: an entry that is or may be of this family could not be used.
	spoilt bool
}

// sourceRanges reads spec.loadBalancerSourceRanges. The annotation of old,
// service.beta.kubernetes.io/load-balancer-source-ranges, is not read.
func (p *problems) sourceRanges(in []string) *sourceRanges {
	var out sourceRanges
	for i, s := range in {
		s = strings.TrimSpace(s)
		if pfx, ok := p.prefix(at(rangesField, i), s); ok {
			out.add(pfx)
		} else {
			out.spoil(s)
		}
	}
	if len(in) > 0 && out.v4.empty() && out.v6.empty() {
		out.v4.spoilt, out.v6.spoilt = true, true
	}
	return &out
}

func (r *sourceRanges) of(f model.Family) *familyRanges {
	if f == model.IPv4 {
		return &r.v4
	}
	return &r.v6
}

func (r *sourceRanges) add(pfx netip.Prefix) {
	list := r.of(model.FamilyOf(pfx.Addr()))
	if pfx.Bits() == 0 {
		list.everybody = true
		return
	}
	list.list = append(list.list, pfx)
}

// spoil counts a bad entry against the family that it looks like, or both (as a
// mapped network does, and a word).
func (r *sourceRanges) spoil(s string) {
	colon := strings.Contains(s, ":")
	dot := strings.Contains(s, ".")
	r.v4.spoilt = r.v4.spoilt || dot || !colon
	r.v6.spoilt = r.v6.spoilt || colon || !dot
}

// list joins both families, sorted and unique, without those that admit everybody.
func (r *sourceRanges) list() []netip.Prefix {
	var out []netip.Prefix
	for _, f := range model.Families() {
		if list := r.of(f); !list.everybody {
			out = append(out, list.list...)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// close leaves out the addresses of a family whose every range was unusable. A
// slip of the pen must not open to everybody what was meant for a few.
func (p *problems) close(in []model.Ingress, r *sourceRanges) []model.Ingress {
	for _, f := range model.Families() {
		if list := r.of(f); !list.spoilt || !list.empty() {
			continue
		}
		before := len(in)
		in = slices.DeleteFunc(in, func(e model.Ingress) bool { return model.FamilyOf(e.Addr) == f })
		if len(in) < before {
			p.add(rangesField, "no usable %s range: the %s load-balancer addresses are not served", f, f)
		}
	}
	return in
}

func (f *familyRanges) empty() bool { return len(f.list) == 0 && !f.everybody }
