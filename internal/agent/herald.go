package agent

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// EventSink is told what the owner of a Service should know, once for each time that it
// begins. It is called by the loop and must not wait.
type EventSink interface {
	// Unbound reports addresses of the Service that are not bound, because other machines
	// have them (internal/DECISIONS.md, Addresses of other machines). holder names the owner
	// of each. A call with a new address lists all of them.
	Unbound(id model.ServiceID, addrs []netip.Addr, holder func(netip.Addr) string)
	// Refused reports external IPs that the operator does not allow
	// (--external-ip-allowed-cidrs). A call with a new one lists all of them.
	Refused(id model.ServiceID, addrs []netip.Addr)
	// BadAnnotations: annotations are not followed, each with the reason. It is told all of
	// them when there is another one.
	BadAnnotations(id model.ServiceID, list []string)
	// TooMany: so many frontends of the Service are not served, for it has more than it may have.
	TooMany(id model.ServiceID, beyond model.Beyond)
	// BadNode: annotations of this Node are not followed.
	BadNode(list []string)
	// Lost reports new conflicts: another Service has what this one claims
	// (internal/DECISIONS.md, Conflicting Services).
	Lost(id model.ServiceID, list []dataplane.Conflict)
}

func (a *Agent) herald(tell func(EventSink)) {
	if a.opts.Events != nil {
		tell(a.opts.Events)
	}
}

// tellOutcome tells about the addresses that are newly not bound, or refused, and about
// annotations that are newly not followed.
func (a *Agent) tellOutcome(id model.ServiceID, before, now *outcome) {
	if another(before.unbound, now.unbound) {
		a.herald(func(h EventSink) { h.Unbound(id, now.unbound, a.host.Holder) })
	}
	if another(before.refused, now.refused) {
		a.herald(func(h EventSink) { h.Refused(id, now.refused) })
	}
	if now.beyond != (model.Beyond{}) && before.beyond == (model.Beyond{}) {
		a.herald(func(h EventSink) { h.TooMany(id, now.beyond) })
	}
	if another(before.bad, now.bad) {
		a.herald(func(h EventSink) { h.BadAnnotations(id, now.bad) })
	}
}

// another reports whether there is one now that was not there before.
func another[T comparable](before, now []T) bool {
	if len(now) == 0 {
		return false
	}
	known := make(map[T]struct{}, len(before))
	for _, one := range before {
		known[one] = struct{}{}
	}
	return slices.ContainsFunc(now, func(one T) bool { _, is := known[one]; return !is })
}

// tellLost tells each loser once of what it lost.
func (a *Agent) tellLost(conflicts []dataplane.Conflict) {
	lost := map[model.ServiceID][]dataplane.Conflict{}
	for _, c := range conflicts {
		if !c.Over {
			lost[c.Loser] = append(lost[c.Loser], c)
		}
	}
	for id, list := range lost {
		a.herald(func(h EventSink) { h.Lost(id, list) })
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
