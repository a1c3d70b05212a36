package agent

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// An outcome is the result of one Service's plan, for status and for logging changes once. It is never
// changed.
type outcome struct {
	served  bool // the Service has frontends
	skipped string
	// intended and remarks: see model.ServicePlan.
	intended bool
	remarks  []model.Note
	notes    []model.Note
	unbound  []netip.Addr
	refused  []netip.Addr
	bad      []string // annotations that are not followed
	beyond   model.Beyond
	external bool       // the Service is served by external IPs
	noLocal  [2]NoLocal // IPv4, IPv6
}

// absentOutcome is the outcome of a Service that does not exist, plainOutcome that of a Service that is served
// as it asks: of most. Both are shared.
var absentOutcome, plainOutcome = &outcome{}, &outcome{served: true}

func outcomeOf(p *model.ServicePlan) *outcome {
	o := &outcome{
		served: len(p.Frontends) > 0, skipped: p.Skipped, intended: p.Intended, remarks: p.Remarks, notes: p.Notes,
		unbound: p.Unbound, refused: p.Refused, bad: p.BadAnnotations, beyond: p.Beyond, noLocal: noLocal(p.Frontends),
		external: slices.ContainsFunc(p.Frontends, func(f model.Frontend) bool { return f.Kind == model.KindExternalIP }),
	}
	if o.skipped != "" || len(o.notes)+len(o.remarks)+len(o.unbound)+len(o.refused)+len(o.bad) > 0 || o.noLocal != plainOutcome.noLocal || o.external {
		return o
	}
	if o.served {
		return plainOutcome
	}
	return absentOutcome
}

// noLocal returns, by family, whether a policy Local leaves a Service without backends.
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

// counts returns what the Service adds to the counts of all Services.
func (o *outcome) counts() Counts {
	c := Counts{Unbound: len(o.unbound), NoLocal4: o.noLocal[0], NoLocal6: o.noLocal[1]}
	if o.skipped != "" {
		c.Skipped = 1
	} else if o.served {
		c.Services = 1
	}
	if len(o.notes) > 0 {
		c.Noted = 1
	}
	if len(o.bad) > 0 {
		c.RefusedAnnotations = 1
	}
	if o.external {
		c.External = 1
	}
	return c
}

// Counts are sums over all Services; see Status for the meaning of each.
type Counts struct {
	Services, Skipped, Noted, RefusedAnnotations, Unbound, Conflicts int
	// External counts Services that are served by external IPs.
	External int
	// NoLocal4 and NoLocal6 count Services that a policy Local leaves without backends on this node
	// though they have some elsewhere, by family.
	NoLocal4, NoLocal6 NoLocal
}

// NoLocal counts by the policy that is Local.
type NoLocal struct{ Internal, External int }

func (n NoLocal) plus(o NoLocal, sign int) NoLocal {
	return NoLocal{n.Internal + sign*o.Internal, n.External + sign*o.External}
}

// plus adds the counts of one Service, or subtracts them with a sign of -1.
func (c Counts) plus(o Counts, sign int) Counts {
	return Counts{
		Services: c.Services + sign*o.Services, Skipped: c.Skipped + sign*o.Skipped, Noted: c.Noted + sign*o.Noted,
		RefusedAnnotations: c.RefusedAnnotations + sign*o.RefusedAnnotations,
		Unbound:            c.Unbound + sign*o.Unbound, Conflicts: c.Conflicts + sign*o.Conflicts, External: c.External + sign*o.External,
		NoLocal4: c.NoLocal4.plus(o.NoLocal4, sign), NoLocal6: c.NoLocal6.plus(o.NoLocal6, sign),
	}
}

// A lostFrontend is a frontend that a Service wants and another Service has.
type lostFrontend struct {
	loser model.ServiceID
	key   model.FrontendKey
}

// outcomes owns the result of each Service's plan, the counts of all and the frontends that are lost to
// another Service. It belongs to the loop goroutine.
type outcomes struct {
	byID   map[model.ServiceID]*outcome // Services that have frontends, or a reason to have none
	lost   map[lostFrontend]struct{}
	counts Counts
}

func newOutcomes() outcomes {
	return outcomes{byID: map[model.ServiceID]*outcome{}, lost: map[lostFrontend]struct{}{}}
}

// set replaces the outcome of one Service.
func (s *outcomes) set(p *model.ServicePlan) (before, now *outcome) {
	before, now = s.byID[p.ID], outcomeOf(p)
	if before == nil {
		before = absentOutcome
	}
	if !now.served && now.skipped == "" {
		delete(s.byID, p.ID)
	} else {
		s.byID[p.ID] = now
	}
	s.counts = s.counts.plus(now.counts(), 1).plus(before.counts(), -1)
	return before, now
}

// settle takes over the conflicts of one batch, in their order, and returns those that are new or over
// after it. A Service that was renamed is in conflict with its old self for a moment within a batch.
func (s *outcomes) settle(conflicts []dataplane.Conflict) (changed []dataplane.Conflict) {
	latest := make(map[lostFrontend]int, len(conflicts))
	for i, c := range conflicts {
		latest[lostFrontend{c.Loser, c.Key}] = i
	}
	for i, c := range conflicts {
		k := lostFrontend{c.Loser, c.Key}
		if _, known := s.lost[k]; latest[k] != i || known != c.Over {
			continue
		}
		if changed = append(changed, c); c.Over {
			delete(s.lost, k)
		} else {
			s.lost[k] = struct{}{}
		}
	}
	s.counts.Conflicts = len(s.lost)
	return changed
}
