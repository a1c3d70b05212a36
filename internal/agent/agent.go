package agent

import (
	"context"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// Catalog is what the loop needs of the room that keeps the inputs.
type Catalog interface {
	Wake() <-chan time.Time
	Coming() bool
	Synced() bool
	Take() catalog.Batch
	TakeSome(limit int, first func(*model.Service) bool) (b catalog.Batch, more bool)
	Matching(concerned func(*model.Service, []*model.Slice) bool) []catalog.Input
}

// Compiler turns one Service into frontends; *plan.Compiler is one.
type Compiler interface {
	Compile(id model.ServiceID, svc *model.Service, slices []model.Slice) model.ServicePlan
	// Explain says of each endpoint what becomes of it, and why.
	Explain(id model.ServiceID, svc *model.Service, slices []model.Slice) []model.PortStory
}

// Observer is told what happened, between cycles, on the loop goroutine.
type Observer interface {
	Pass(Pass)
	Cycle(Cycle)
	Drift(dataplane.Drift)
	Tables([]dataplane.TableStatus)
	Drains(dataplane.Drains)
	Counts(Counts)
}

// Options join an Agent to its rooms.
type Options struct {
	Log     *zap.Logger
	Catalog Catalog
	Mode    dataplane.Dataplane
	// NodeName is the name of this node, for status.
	NodeName string
	// Compiler makes the compiler for what is known of the host, and Concerns the
	// question which Services are compiled differently for another one.
	Compiler func(host model.Host) Compiler
	Concerns func(before, now model.Host) func(*model.Service, []*model.Slice) bool
	// Host reads what this machine answers on by itself, and NodePorts selects on
	// which of that NodePorts do; nil selects nothing.
	Host      HostReader
	NodePorts func(model.Host) []netip.Addr
	// APIServers returns the addresses at which the API server is reached, sorted; nil is a node without one. Who knows of
	// another calls HostChanged.
	APIServers func() []netip.Addr
	// DNSServices are namespace/name of Services that are served first when a node starts.
	DNSServices []string
	// PodRanges are the ranges of pods of the whole cluster, where they are known.
	PodRanges []netip.Prefix
	// Unreadable names input that cannot be read and whose last good content stays in force, for
	// Status; nil is none.
	Unreadable func() []string
	// Remember keeps for the next process which addresses that Services claim a Node has or had; nil does not.
	Remember func(map[netip.Addr]string)
	// LocalPod tells whether an address counts as one of a pod of this node, where addresses
	// tell that; nil is never so.
	LocalPod func(netip.Addr, model.Node) bool
	// TryScheduler asks the kernel for a scheduler that a Service asks for; nil is a
	// kernel that takes every one.
	TryScheduler func(context.Context, scheduler.Spec) error
	// TryGUE asks it in the same way for tunnels by GUE.
	TryGUE func(context.Context) error
	// Health is told what health-check ports answer; nil is nobody.
	Health   Health
	Observer Observer
	// EventSink is told what the owners of Services should know; nil is nobody.
	Events EventSink

	// Ready is called once, when the first sync is done; nil is nobody.
	Ready func()
	// Coalesce is how long after a batch the next one waits for more changes, so
	// that a burst becomes one batch; 0 is DefaultCoalesce.
	Coalesce time.Duration
	Periods
	// RetryMin and RetryMax bound the backoff of what failed; 0 are the defaults.
	RetryMin, RetryMax time.Duration
}

// Periods are the times that belong to a mode.
type Periods struct {
	// MinPeriod is the least time between two batches (kube-proxy's minSyncPeriod);
	// the first change after a longer rest does not wait for it.
	MinPeriod time.Duration
	// AuditPeriod is the time from the beginning of one audit to that of the next; 0 is
	// DefaultAuditPeriod, negative is neither audits nor samples.
	AuditPeriod time.Duration
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

// hostPause is the least time between two readings of the host that events ask for.
const hostPause = 100 * time.Millisecond

// Agent is the loop and what it knows. All fields belong to the goroutine in
// Run, but for posts.
type Agent struct {
	opts Options
	mode mode
	log  *zap.Logger
	// writes is log with at most writeLines lines a second of one message.
	writes *zap.Logger
	posts  chan func(context.Context)
	moved  chan struct{} // the host's addresses changed

	compiler Compiler
	host     model.Host // what was compiled for
	known    model.Host // what is known by now, but for NodePorts
	// remembered is what Options.Remember was told last.
	remembered map[netip.Addr]string
	hostRead   bool      // the machine was asked, and it answered
	hostMoved  bool      // known is not what is compiled for
	asked      time.Time // when it was asked last
	synced     bool      // every source has delivered what it can
	complete   bool      // and could read all of it
	loaded     bool      // the kernel was read
	adopted    bool      // and what it held was told
	prepared   time.Time // when it was read, or written, before the sources were in sync
	founding   bool      // then it carried nothing, and has what no source decides
	audits     audits
	tried      map[scheduler.Spec]bool // schedulers that the kernel took
	triedGUE   bool                    // and tunnels by GUE
	stats      stats
	services   map[model.ServiceID]*outcome
	counts     Counts
	contests   map[contest]struct{}
	health     healthBook
	triggers   []catalog.Trigger // of changes that are not in the kernel yet
	took       time.Time         // when the last batch was done
	pressed    time.Duration     // how long it took, if there was hardly a pause before it
	began      time.Time         // when the changes were taken that are being applied
	debt       debt              // of any goroutine
	pulse      pulse             // of any goroutine

	coalesce, retry, repair, audit, sample, reread, due, held, again timer
	backoff                                                          time.Duration
	wakes                                                            time.Time // when due was set to
	repaired                                                         time.Time // the last repair
	warned                                                           time.Time // the last warning that applying failed
}

// New returns an agent that has not begun.
func New(o Options) *Agent {
	o.setDefaults()
	return &Agent{
		opts:     o,
		mode:     openMode(o.Mode),
		log:      o.Log.Named("agent"),
		writes:   fewASecond(o.Log.Named("agent")),
		posts:    make(chan func(context.Context)),
		moved:    make(chan struct{}, 1),
		known:    model.Host{PodRanges: o.PodRanges},
		compiler: o.Compiler(model.Host{}),
		services: map[model.ServiceID]*outcome{},
		contests: map[contest]struct{}{},
		health:   newHealthBook(),
		tried:    map[scheduler.Spec]bool{},
		coalesce: newTimer(), retry: newTimer(), repair: newTimer(), audit: newTimer(), sample: newTimer(), reread: newTimer(), due: newTimer(), held: newTimer(), again: newTimer(),
	}
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
	a.pulse.during(time.Now(), func() {
		a.prepare(ctx)
		if !a.opts.Catalog.Synced() {
			a.takeEarly(ctx) // the API server's own Service, mostly, before anything else is asked for
		}
	})
	for {
		next := a.wait(ctx)
		if next == nil {
			return nil
		}
		a.pulse.during(time.Now(), func() { next(ctx) })
	}
}

// wait returns what is to be done next, nil when ctx ends.
func (a *Agent) wait(ctx context.Context) func(context.Context) {
	select {
	case <-ctx.Done():
		return nil
	case since := <-a.opts.Catalog.Wake():
		return func(ctx context.Context) { a.woken(ctx, since) }
	case <-a.coalesce.C():
		a.coalesce.fired()
		return a.take
	case <-a.held.C():
		a.held.fired()
		return a.take
	case f := <-a.posts:
		return f
	case <-a.retry.C():
		a.retry.fired()
		return func(ctx context.Context) { a.apply(ctx, true) }
	case <-a.repair.C():
		a.repair.fired()
		a.repaired = time.Now()
		return func(ctx context.Context) { a.apply(ctx, false) }
	case <-a.due.C():
		a.due.fired()
		return func(ctx context.Context) { a.apply(ctx, false) }
	case <-a.moved:
		return a.hostEvent
	case <-a.reread.C():
		a.reread.fired()
		return a.follow
	case <-a.again.C():
		a.again.fired()
		return a.tryRefused
	case <-a.audit.C():
		a.audit.fired()
		return a.inspect
	case <-a.sample.C():
		a.sample.fired()
		return a.lookForLoss
	}
}

// woken answers for the changes that the catalog has. While a source has not delivered
// everything they are no fault of this node, and ours to write only where nothing is
// carried yet. A change waits for company until Coalesce after the last batch, or after it
// came itself where that was before, while the loop was busy: what comes one by one waits
// for nothing, and a burst is two batches.
func (a *Agent) woken(ctx context.Context, since time.Time) {
	if !a.opts.Catalog.Synced() {
		if a.founding && a.opts.Catalog.Coming() {
			a.coalesce.armUnlessSet(partPause)
		}
		return
	}
	now := time.Now()
	a.debt.owe(now)
	company := a.opts.Coalesce - max(now.Sub(a.took), now.Sub(since))
	if !a.synced {
		a.coalesce.stop() // of what was still coming
	}
	if rest := a.pause(company, now); rest > 0 || a.coalesce.set {
		a.coalesce.armUnlessSet(rest)
	} else {
		a.take(ctx)
	}
}

// longestBreak bounds how long the loop rests after a batch.
const longestBreak = 50 * time.Millisecond

// pause is how long the next batch waits for more changes, at least for company. Where one
// batch follows another, as on a machine that is slow or busy, it waits for as long as the
// last one took: there are fewer and larger batches, and each costs less.
func (a *Agent) pause(company time.Duration, now time.Time) time.Duration {
	rest := max(min(a.pressed, longestBreak), a.opts.MinPeriod)
	return max(company, rest-now.Sub(a.took))
}

// done notes that a batch is written, which began at that time.
func (a *Agent) done(began time.Time) {
	pressed := began.Sub(a.took) < a.opts.Coalesce+min(a.pressed, longestBreak)
	if a.took, a.pressed = time.Now(), 0; pressed {
		a.pressed = a.took.Sub(began)
	}
}

func (a *Agent) stopTimers() {
	for _, t := range []*timer{&a.coalesce, &a.retry, &a.repair, &a.audit, &a.sample, &a.reread, &a.due, &a.held, &a.again} {
		t.stop()
	}
}

// Do has the loop run f between two cycles and waits until it did. It fails when
// ctx ends first, as it does when the loop is stuck or has ended.
func (a *Agent) Do(ctx context.Context, f func(context.Context)) error {
	if ctx.Err() != nil { // a loop that has nothing else to do would run f all the same
		return context.Cause(ctx)
	}
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

// Sweep is Repair for f that removes what another mode left. Status tells what that fails
// with until it succeeds.
func (a *Agent) Sweep(ctx context.Context, f func(context.Context) error) error {
	return a.Repair(ctx, func(ctx context.Context) error {
		err := f(ctx)
		if ctx.Err() == nil {
			a.stats.sweepError = err
		}
		if err != nil && ctx.Err() == nil {
			a.audits.failures.Add(1)
		}
		return err
	})
}
