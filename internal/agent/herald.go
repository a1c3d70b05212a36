package agent

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Herald is told what the owner of a Service should know, once for each time that it
// begins. It is called by the loop and must not wait.
type Herald interface {
	// Unbound: an address of the Service belongs to a node (decision 10).
	Unbound(id model.ServiceID, addr netip.Addr, holder string)
	// Refused: the operator does not allow an external IP (decision 31).
	Refused(id model.ServiceID, addr netip.Addr)
	// Lost: an older Service has what this one claims (decision 15).
	Lost(c dataplane.Conflict)
}

func (a *Agent) herald(tell func(Herald)) {
	if a.opts.Herald != nil {
		tell(a.opts.Herald)
	}
}

// tellRefused tells about the external IPs that are newly refused.
func (a *Agent) tellRefused(id model.ServiceID, before, now []netip.Addr) {
	for _, addr := range now {
		if !slices.Contains(before, addr) {
			a.herald(func(h Herald) { h.Refused(id, addr) })
		}
	}
}

// noLocal finds out whether a policy Local leaves a Service without backends.
func noLocal(frontends []model.Frontend) (out [2]NoLocal) {
	for i := range frontends {
		f := &frontends[i]
		if !f.NoLocal {
			continue
		}
		n := &out[0]
		if model.FamilyOf(f.Key.Addr) == model.IPv6 {
			n = &out[1]
		}
		if f.Kind.External() {
			n.External = 1
		} else {
			n.Internal = 1
		}
	}
	return out
}
