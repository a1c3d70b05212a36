package agent

import (
	"context"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// outcome is what became of one Service, for status and for logging changes once.
type outcome struct {
	frontends int
	skipped   string
	notes     []string
	unbound   []netip.Addr
}

// counts is what the Service adds to the counts of all.
func (o outcome) counts() Counts {
	c := Counts{Unbound: len(o.unbound)}
	if o.skipped != "" {
		c.Skipped = 1
	} else if o.frontends > 0 {
		c.Services = 1
	}
	if len(o.notes) > 0 {
		c.Noted = 1
	}
	return c
}

// contest is a Service that does not get what it wants.
type contest struct {
	loser model.ServiceID
	key   model.FrontendKey
}

// take compiles what changed and applies it.
func (a *Agent) take(ctx context.Context) {
	batch := a.opts.Catalog.Take()
	if batch.NodeChanged {
		a.logNode(batch.Node)
		a.known.Node, a.known.Nodes, a.hostMoved = batch.Node, batch.Nodes, true
	}
	if batch.Synced && !a.loaded && !a.hostRead {
		_ = a.readHost(ctx) // spares a second compile; load asks again and tells
	}
	concerned, _ := a.adopt()
	a.compile(merged(concerned, batch.Services))
	if batch.Synced && !a.synced {
		a.log.Info("sources in sync", zap.Int("services", len(a.services)), zap.Bool("complete", batch.Complete))
	}
	a.synced, a.complete = batch.Synced, batch.Complete
	a.apply(ctx, false)
}

// merged joins two lists sorted by ID. Of a Service in both the first is the
// newer, for it was read later.
func merged(newer, older []catalog.Input) []catalog.Input {
	if len(newer) == 0 {
		return older
	}
	all := slices.Concat(newer, older)
	slices.SortStableFunc(all, func(a, b catalog.Input) int { return a.ID.Compare(b.ID) })
	return slices.CompactFunc(all, func(a, b catalog.Input) bool { return a.ID == b.ID })
}

// compile hands the plans of some Services to the mode.
func (a *Agent) compile(inputs []catalog.Input) {
	for _, in := range inputs {
		a.set(a.compiler.Compile(in.ID, in.Service, in.Slices))
	}
	a.stats.taken(len(inputs))
}

// set hands one plan to the mode, and logs what people would ask about.
func (a *Agent) set(p model.ServicePlan) {
	conflicts := a.opts.Mode.Set(p)
	before, now := a.services[p.ID], outcome{frontends: len(p.Frontends), skipped: p.Skipped, notes: p.Notes, unbound: p.Unbound}
	a.logOutcome(p.ID, before, now)
	if now.frontends == 0 && now.skipped == "" {
		delete(a.services, p.ID)
	} else {
		a.services[p.ID] = now
	}
	a.counts = a.counts.plus(now.counts(), 1).plus(before.counts(), -1)
	a.health.want(p.ID, p.Health)
	a.judge(conflicts)
}

// judge keeps who lost what, and says what is new of it.
func (a *Agent) judge(conflicts []dataplane.Conflict) {
	for _, c := range conflicts {
		level, k := zap.WarnLevel, contest{c.Loser, c.Key}
		if c.Over {
			level = zap.InfoLevel
			delete(a.contests, k)
		} else {
			a.contests[k] = struct{}{}
		}
		a.log.Log(level, "address conflict", zap.Stringer("service", c.Loser), zap.Stringer("frontend", c.Key), zap.String("reason", c.String()))
	}
	a.counts.Conflicts = len(a.contests)
}
