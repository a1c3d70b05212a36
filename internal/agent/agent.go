package agent

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Catalog is what the loop needs of the room that keeps the inputs.
type Catalog interface {
	Wake() <-chan struct{}
	Take() catalog.Batch
}

// Compiler turns one Service into frontends; *plan.Compiler is one.
type Compiler interface {
	Compile(id model.ServiceID, svc *model.Service, slices []model.Slice) model.ServicePlan
}

// Observer is told what happened, between cycles, on the loop goroutine.
type Observer interface {
	Cycle(Cycle)
	Drift(dataplane.Drift)
	Tables([]dataplane.TableStatus)
}

// Options join an Agent to its rooms.
type Options struct {
	Log     *zap.Logger
	Catalog Catalog
	Mode    dataplane.Dataplane
	// NodeName is the name of this node, for status.
	NodeName string
	// Compiler makes the compiler for what is known of this node.
	Compiler func(host model.Host) Compiler
	Observer Observer

	// Coalesce is how long the loop waits after the first of several changes, so
	// that a burst becomes one batch; 0 is DefaultCoalesce.
	Coalesce time.Duration
	// AuditPeriod is the time between two rounds that look for drift; 0 is
	// DefaultAuditPeriod, negative none.
	AuditPeriod time.Duration
	// RetryMin and RetryMax bound the backoff of what failed; 0 are the defaults.
	RetryMin, RetryMax time.Duration
}

// The defaults of Options.
const (
	DefaultCoalesce    = 5 * time.Millisecond
	DefaultAuditPeriod = 30 * time.Second
	DefaultRetryMin    = 100 * time.Millisecond
	DefaultRetryMax    = 30 * time.Second
)

// repairPause is the least time between two repairs of what somebody else takes
// away: a program that does so again and again is not fought at full speed.
const repairPause = time.Second

// auditSlice bounds one stretch of an audit, so that a change waits no longer.
const auditSlice = 50 * time.Millisecond

// Agent is the loop and what it knows. All fields belong to the goroutine in
// Run, but for posts.
type Agent struct {
	opts  Options
	log   *zap.Logger
	posts chan func(context.Context)

	compiler Compiler
	node     model.Node
	synced   bool // every source has delivered what it can
	complete bool // and could read all of it
	loaded   bool // the kernel was read
	stats    stats
	services map[model.ServiceID]outcome

	coalesce, retry, repair, audit timer
	backoff                        time.Duration
	repaired                       time.Time // the last repair
}

// outcome is what became of one Service, for status and for logging changes once.
type outcome struct {
	frontends int
	skipped   string
	notes     []string
}

// New returns an agent that has not begun.
func New(o Options) *Agent {
	o.setDefaults()
	a := &Agent{
		opts:     o,
		log:      o.Log.Named("agent"),
		posts:    make(chan func(context.Context)),
		compiler: o.Compiler(model.Host{}),
		services: map[model.ServiceID]outcome{},
		coalesce: newTimer(), retry: newTimer(), repair: newTimer(), audit: newTimer(),
	}
	return a
}

func (o *Options) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Coalesce, DefaultCoalesce}, {&o.AuditPeriod, DefaultAuditPeriod},
		{&o.RetryMin, DefaultRetryMin}, {&o.RetryMax, DefaultRetryMax},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}

// Run is the loop. It returns nil when ctx ends, and leaves the kernel as it is.
func (a *Agent) Run(ctx context.Context) error {
	defer a.stopTimers()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.opts.Catalog.Wake():
			a.coalesce.armUnlessSet(a.opts.Coalesce)
		case <-a.coalesce.C():
			a.coalesce.fired()
			a.take(ctx)
		case f := <-a.posts:
			f(ctx)
		case <-a.retry.C():
			a.retry.fired()
			a.apply(ctx, true)
		case <-a.repair.C():
			a.repair.fired()
			a.repaired = time.Now()
			a.apply(ctx, false)
		case <-a.audit.C():
			a.audit.fired()
			a.inspect(ctx)
		}
	}
}

func (a *Agent) stopTimers() {
	for _, t := range []*timer{&a.coalesce, &a.retry, &a.repair, &a.audit} {
		t.stop()
	}
}

// Do has the loop run f between two cycles and waits until it did. It fails when
// ctx ends first, as it does when the loop is stuck or has ended.
func (a *Agent) Do(ctx context.Context, f func(context.Context)) error {
	done := make(chan struct{})
	select {
	case a.posts <- func(ctx context.Context) { defer close(done); f(ctx) }:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Repair has the loop run f, which makes rows pending that somebody else took
// away. They are written soon, together with what else is lost in that moment.
func (a *Agent) Repair(ctx context.Context, f func(context.Context) error) error {
	var failed error
	err := a.Do(ctx, func(ctx context.Context) {
		failed = f(ctx)
		a.repair.armUnlessSet(max(a.opts.Coalesce, repairPause-time.Since(a.repaired)))
	})
	if err != nil {
		return err // the loop may be writing failed just now
	}
	return failed
}

// take compiles what changed and applies it.
func (a *Agent) take(ctx context.Context) {
	batch := a.opts.Catalog.Take()
	if batch.NodeChanged {
		a.setNode(batch.Node)
	}
	for _, in := range batch.Services {
		a.set(a.compiler.Compile(in.ID, in.Service, in.Slices))
	}
	if batch.Synced && !a.synced {
		a.log.Info("sources in sync", zap.Int("services", len(a.services)), zap.Bool("complete", batch.Complete))
	}
	a.synced, a.complete = batch.Synced, batch.Complete
	a.stats.taken(len(batch.Services))
	a.apply(ctx, false)
}

// setNode takes over what is known of this node. A batch with another zone has
// all Services, for their plans depend on it.
func (a *Agent) setNode(n model.Node) {
	for _, p := range n.Problems {
		if !slices.Contains(a.node.Problems, p) {
			a.log.Warn("part of the node not used", zap.String("reason", p))
		}
	}
	host := model.Host{Node: n}
	a.compiler = a.opts.Compiler(host)
	a.opts.Mode.SetHost(host)
	a.node = n
}

// set hands one plan to the mode, and logs what people would ask about.
func (a *Agent) set(p model.ServicePlan) {
	conflicts := a.opts.Mode.Set(p)
	now := outcome{frontends: len(p.Frontends), skipped: p.Skipped, notes: p.Notes}
	a.logOutcome(p.ID, a.services[p.ID], now)
	if now.frontends == 0 && now.skipped == "" {
		delete(a.services, p.ID)
	} else {
		a.services[p.ID] = now
	}
	for _, c := range conflicts {
		level := zap.WarnLevel
		if c.Over {
			level = zap.InfoLevel
		}
		a.log.Log(level, "address conflict", zap.Stringer("service", c.Loser), zap.Stringer("frontend", c.Key), zap.String("reason", c.String()))
	}
}

// apply writes what is pending, if it may, and arranges for what failed. Rows
// that failed before rest until the retry timer fires.
func (a *Agent) apply(ctx context.Context, retry bool) {
	if !a.synced || ctx.Err() != nil || !a.loaded && a.retry.set {
		return
	}
	start := time.Now()
	if err := a.load(ctx); err != nil {
		a.failed(ctx, err, 0, true)
		return
	}
	result := a.opts.Mode.Apply(ctx, dataplane.ApplyOptions{KeepOrphans: !a.complete, Retry: retry})
	a.record(start, result)
	if result.Pending > 0 {
		a.failed(ctx, result.Total().Err(), result.Pending, retry)
		return
	}
	a.succeeded()
}

// load makes the mode ready and reads the kernel, once.
func (a *Agent) load(ctx context.Context) error {
	if a.loaded {
		return nil
	}
	if err := a.opts.Mode.Start(ctx); err != nil {
		return err
	}
	if err := a.opts.Mode.Load(ctx); err != nil {
		return err
	}
	a.loaded = true
	a.logAdopted()
	if a.opts.AuditPeriod > 0 {
		a.audit.arm(a.opts.AuditPeriod)
	}
	return nil
}

// failed schedules the next try of what is pending. An appointment that stands
// is kept, whatever changes meanwhile. Without an error nothing new has failed.
func (a *Agent) failed(ctx context.Context, err error, pending int, retry bool) {
	if ctx.Err() != nil {
		return // told to stop: what was interrupted is no failure
	}
	if retry || !a.retry.set {
		a.backoff = min(max(a.backoff*2, a.opts.RetryMin), a.opts.RetryMax)
		a.retry.arm(a.backoff)
	}
	if err == nil {
		return
	}
	a.stats.failures++
	news := a.stats.lastError == nil || a.stats.lastError.Error() != err.Error()
	a.stats.lastError = err
	if retry || news {
		a.log.Warn("apply failed, will retry",
			zap.Int("pending", pending), zap.Duration("in", a.backoff), zap.Uint64("attempt", a.stats.failures), zap.Error(err))
	}
}

func (a *Agent) succeeded() {
	if a.stats.lastError != nil {
		a.log.Info("everything pending is written again", zap.Uint64("attempt", a.stats.failures))
	}
	a.backoff, a.stats.failures, a.stats.lastError = 0, 0, nil
	a.retry.stop()
	if !a.stats.ready {
		a.stats.ready = true
		a.log.Info("first sync done", zap.Int("services", len(a.services)))
	}
}

// inspect goes on with the audit for a moment and repairs what it found.
func (a *Agent) inspect(ctx context.Context) {
	drift, done, err := a.opts.Mode.Audit(ctx, auditSlice)
	next := time.Duration(0)
	if done {
		next = a.opts.AuditPeriod
		a.stats.audits++
	}
	a.audit.arm(next)
	if err != nil && ctx.Err() == nil {
		a.log.Warn("part of the audit failed, will be read again", zap.Error(err))
	}
	if drift.Total() == 0 {
		return
	}
	a.opts.Observer.Drift(drift)
	a.stats.drifted += uint64(drift.Total())
	a.log.Info("drift found, will be repaired", zap.Any("rows", drift))
	a.apply(ctx, false)
}
