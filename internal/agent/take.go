package agent

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// outcome is what became of one Service, for status and for logging changes once.
type outcome struct {
	served  bool // it has frontends
	skipped string
	// intended and remarks: see model.ServicePlan.
	intended bool
	remarks  []model.Note
	notes    []model.Note
	unbound  []netip.Addr
	refused  []netip.Addr
	bad      []string // annotations that are not followed
	beyond   model.Beyond
	// external: it is served by external IPs.
	external bool
	noLocal  [2]NoLocal // IPv4, IPv6
}

// nothing is the outcome of a Service that is not there, and plain that of most: they are
// served, and there is nothing to say about them. Both are shared.
var nothing, plain = &outcome{}, &outcome{served: true}

func outcomeOf(p model.ServicePlan) *outcome {
	o := &outcome{served: len(p.Frontends) > 0, skipped: p.Skipped, intended: p.Intended, remarks: p.Remarks, notes: p.Notes, unbound: p.Unbound, refused: p.Refused, bad: p.BadAnnotations, beyond: p.Beyond, noLocal: noLocal(p.Frontends),
		external: slices.ContainsFunc(p.Frontends, func(f model.Frontend) bool { return f.Kind == model.KindExternalIP })}
	if o.skipped != "" || len(o.notes)+len(o.remarks)+len(o.unbound)+len(o.refused)+len(o.bad) > 0 || o.noLocal != plain.noLocal || o.external {
		return o
	}
	if o.served {
		return plain
	}
	return nothing
}

// counts is what the Service adds to the counts of all.
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

// contest is a Service that does not get what it wants.
type contest struct {
	loser model.ServiceID
	key   model.FrontendKey
}

// take compiles what changed and applies it.
func (a *Agent) take(ctx context.Context) {
	if !a.opts.Catalog.Synced() {
		a.takeEarly(ctx)
		return
	}
	a.began = time.Now()
	select {
	case <-a.opts.Catalog.Wake(): // of what is taken now
	default:
	}
	batch := a.opts.Catalog.Take()
	if len(batch.Services) > 0 || batch.NodeChanged {
		defer a.done(a.began)
	}
	a.outdated()
	a.waitFor(batch.Triggers)
	a.takeHeld(batch.Held)
	a.takeNodes(batch)
	if !a.loaded && !a.hostRead {
		_ = a.readHost(ctx) // spares a second compile; load asks again and tells
	}
	a.trySchedulers(ctx, batch.Services)
	concerned, _ := a.adopt()
	inputs := merged(concerned, batch.Services)
	if !a.synced {
		a.log.Info("sources in sync", zap.Int("services", len(inputs)), zap.Bool("complete", batch.Complete))
		inputs = a.serveFirst(ctx, inputs)
	}
	first := !a.synced
	a.synced, a.complete = true, batch.Complete
	a.compile(ctx, inputs)
	a.apply(ctx, first) // what failed before anybody could be told
}

func (a *Agent) takeNodes(batch catalog.Batch) {
	if batch.NodeChanged {
		a.logNode(batch.Node)
		a.known.Node, a.known.Nodes, a.known.Weights, a.hostMoved = batch.Node, batch.Nodes, batch.Weights, true
		a.known.Endpoints, a.known.Guarded = batch.Endpoints, batch.Guarded
	}
	if a.opts.Remember != nil && batch.Synced && (a.remembered == nil || !maps.Equal(a.remembered, batch.Kept)) {
		a.remembered = batch.Kept // the first replaces what the process before has kept
		a.opts.Remember(batch.Kept)
	}
}

// takeHeld arranges for what the catalog holds back.
func (a *Agent) takeHeld(due time.Time) {
	if due.IsZero() {
		a.held.stop()
	} else {
		now := time.Now()
		a.held.arm(max(due.Sub(now), a.pause(a.opts.Coalesce, now)))
	}
}

// maxTriggers bounds what is remembered while nothing can be written at all.
const maxTriggers = 10_000

// waitFor remembers when changes began that are to be written; the oldest go first.
func (a *Agent) waitFor(triggers []catalog.Trigger) {
	a.triggers = append(a.triggers, triggers...)
	if excess := len(a.triggers) - maxTriggers; excess > 0 {
		a.triggers = slices.Delete(a.triggers, 0, excess)
	}
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

// compile hands the plans of some Services to the mode, until the agent is to end: then nothing is written any more.
func (a *Agent) compile(ctx context.Context, inputs []catalog.Input) {
	var conflicts []dataplane.Conflict
	for _, in := range inputs {
		if ctx.Err() != nil {
			return
		}
		conflicts = append(conflicts, a.set(a.compiler.Compile(in.ID, in.Service, in.Slices))...)
	}
	a.judge(conflicts)
	a.stats.taken(len(inputs))
}

// set hands one plan to the mode, and logs what people would ask about. It returns what the
// mode says of conflicts.
func (a *Agent) set(p model.ServicePlan) []dataplane.Conflict {
	conflicts := a.mode.Set(p)
	before, now := a.services[p.ID], outcomeOf(p)
	if before == nil {
		before = nothing
	}
	a.logOutcome(p.ID, before, now)
	if !now.served && now.skipped == "" {
		delete(a.services, p.ID)
	} else {
		a.services[p.ID] = now
	}
	a.counts = a.counts.plus(now.counts(), 1).plus(before.counts(), -1)
	a.health.want(p.ID, p.Health)
	return conflicts
}

// judge keeps who lost what after a batch, and says what is new of it. A Service that was
// renamed comes before the old one goes, and is in a conflict for the moment between.
func (a *Agent) judge(conflicts []dataplane.Conflict) {
	latest := make(map[contest]int, len(conflicts))
	for i, c := range conflicts {
		latest[contest{c.Loser, c.Key}] = i
	}
	var news []dataplane.Conflict
	for i, c := range conflicts {
		k := contest{c.Loser, c.Key}
		if _, known := a.contests[k]; latest[k] != i || known != c.Over {
			continue
		}
		if news = append(news, c); c.Over {
			delete(a.contests, k)
		} else {
			a.contests[k] = struct{}{}
		}
	}
	a.counts.Conflicts = len(a.contests)
	a.logConflicts(news)
	a.tellLost(news)
}

// logConflicts writes one line for each Service and cause: the first of its frontends, and how many more there are.
func (a *Agent) logConflicts(conflicts []dataplane.Conflict) {
	type cause struct {
		loser, winner model.ServiceID
		kind          model.Kind
		over          bool
	}
	of := func(c dataplane.Conflict) cause { return cause{c.Loser, c.Winner, c.Kind, c.Over} }
	more := map[cause]int{}
	var first []dataplane.Conflict
	for _, c := range conflicts {
		k := of(c)
		if _, told := more[k]; !told {
			first = append(first, c)
			more[k] = -1
		}
		more[k]++
	}
	for _, c := range first {
		level := zap.WarnLevel
		if c.Over {
			level = zap.InfoLevel
		}
		fields := []zap.Field{zap.Stringer("service", c.Loser), zap.Stringer("frontend", c.Key), zap.String("reason", c.String())}
		if n := more[of(c)]; n > 0 {
			fields = append(fields, zap.Int("more", n))
		}
		a.log.Log(level, "address conflict", fields...)
	}
}
