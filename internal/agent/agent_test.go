package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// mode is a dataplane in memory: it journals what the loop asks of it and fails
// on demand.
type mode struct {
	leaves    netip.AddrPort       // drains, with drains
	frontends *dataplane.Frontends // frontends of the loop alone
	mu        sync.Mutex
	journal   []string
	plans     map[model.ServiceID]model.ServicePlan
	desired   int // rows, one for each Set
	dirty     int // number of rows that are to be written
	resting   int // of which failed before
	host      model.Host

	startErr, loadErr, applyErr error
	keptOrphans                 []bool
	retried                     []bool
	planned                     [][]string // the Services that were set, at each Apply
	drift                       dataplane.Drift
	carries                     bool
	hasBase                     bool
	auditTakes, writingTakes    time.Duration
	auditErr                    error                // the error of audits
	conflicts                   []dataplane.Conflict // returned by Set, once
	due                         time.Time            // when the mode asks to be applied, once
	drains                      dataplane.Drains
	paced                       int                       // rows that are held back, one less at each Apply
	periods                     agent.Periods             // periods of the loop's options
	prober                      func(*world) agent.Prober // of the loop's options; nil is none
	samples                     int
	sampled                     dataplane.Sampled // found by the next sample
	sampleErr                   error
	stall                       chan struct{} // Apply waits for its end, if it is there
	applyTakes                  time.Duration
}

func newMode() *mode {
	return &mode{plans: map[model.ServiceID]model.ServicePlan{}, frontends: dataplane.NewFrontends()}
}

// locked lets a test look at the mode, or change it, while the loop runs.
func (m *mode) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *mode) Name() string { return "ipvs" }

func (m *mode) Start(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.journal = append(m.journal, "start")
	return m.startErr
}

func (m *mode) Load(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.journal = append(m.journal, "load")
	return m.loadErr
}

func (m *mode) Set(p model.ServicePlan) []dataplane.Conflict {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plans[p.ID] = p
	m.frontends.Set(p)
	m.dirty++
	m.desired++
	news := m.conflicts
	m.conflicts = nil
	return news
}

func (m *mode) Frontends() *dataplane.Frontends { return m.frontends }

func (m *mode) CarriesServices() (yes bool) {
	m.locked(func() { yes = m.carries })
	return yes
}

func (m *mode) HasBaseState() (yes bool) {
	m.locked(func() { yes = m.hasBase })
	return yes
}

func (m *mode) SetHost(h model.Host) {
	m.locked(func() { m.host = h; m.journal = append(m.journal, "host") })
}

func (m *mode) Apply(_ context.Context, o dataplane.ApplyOptions) dataplane.Result {
	var stall chan struct{}
	var takes time.Duration
	m.locked(func() { stall, takes = m.stall, m.applyTakes })
	time.Sleep(takes)
	if stall != nil {
		<-stall
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.journal = append(m.journal, "apply")
	m.keptOrphans = append(m.keptOrphans, o.KeepOrphans)
	m.planned = append(m.planned, names(m.plans))
	m.retried = append(m.retried, o.Retry)
	if m.paced > 0 {
		m.paced--
		return dataplane.Result{Pending: m.paced, Paced: m.paced}
	}
	tried := m.dirty - m.resting
	if o.Retry {
		tried = m.dirty
	}
	if m.applyErr != nil && tried == 0 {
		return dataplane.Result{Pending: m.dirty}
	}
	if m.applyErr != nil {
		m.resting = m.dirty
		return dataplane.Result{Pending: m.dirty, Stages: []dataplane.StageResult{
			{Stage: "servers", Outcome: delta.Failures(tried, m.applyErr)}}}
	}
	r := dataplane.Result{}
	if m.dirty > 0 {
		r.Stages = []dataplane.StageResult{{Stage: "servers", Outcome: delta.Outcome{Adds: m.dirty, Took: m.writingTakes}}}
	}
	m.dirty, m.resting = 0, 0
	return r
}

// names lists the Services that have frontends.
func names(plans map[model.ServiceID]model.ServicePlan) []string {
	out := []string{}
	for id, p := range plans {
		if len(p.Frontends) > 0 {
			out = append(out, id.Name)
		}
	}
	slices.Sort(out)
	return out
}

func (m *mode) Audit(context.Context, time.Duration) (dataplane.Audited, error) {
	var takes time.Duration
	m.locked(func() { takes = m.auditTakes })
	time.Sleep(takes) // the bubble's clock
	m.mu.Lock()
	defer m.mu.Unlock()
	m.journal = append(m.journal, "audit")
	d := m.drift
	m.drift = nil
	m.dirty += d.Total()
	return dataplane.Audited{Drift: d, Done: true, Cost: takes}, m.auditErr
}

func (m *mode) Sample(context.Context) (dataplane.Sampled, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples++
	s := m.sampled
	m.sampled = dataplane.Sampled{}
	m.dirty += s.Drift.Total()
	return s, m.sampleErr
}

func (m *mode) Tables() []dataplane.TableStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return []dataplane.TableStatus{{Table: "servers", Desired: m.desired, Updates: m.dirty}}
}

func (m *mode) Due() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	due := m.due
	if !due.IsZero() && !time.Now().Before(due) {
		m.due, due = time.Time{}, time.Time{}
	}
	return due
}

func (m *mode) Drains() (d dataplane.Drains) {
	m.locked(func() { d = m.drains })
	return d
}

func (m *mode) Pending(most int) []dataplane.PendingTable {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := dataplane.PendingTable{Table: "servers", More: max(0, m.dirty-most)}
	for range min(m.dirty, most) {
		t.Rows = append(t.Rows, dataplane.PendingRow{Op: delta.Add, Text: func() string { return "row" }, Failed: m.resting > 0})
	}
	return []dataplane.PendingTable{t}
}

// climbing is the backend that climbs.
var climbing = netip.MustParseAddrPort("10.244.0.9:80")

func (m *mode) Moving(list *dataplane.MovingList) {
	m.locked(func() {
		if m.leaves.IsValid() {
			list.Add(m.leaves, func() dataplane.Moving {
				return dataplane.Moving{Frontend: model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP},
					Service: model.ServiceID{Namespace: "default", Name: "web"}, Backend: m.leaves}
			})
		}
		for range m.drains.Now {
			list.Add(netip.AddrPort{}, func() dataplane.Moving { return dataplane.Moving{} })
		}
		for range m.drains.Climbing {
			list.Add(climbing, func() dataplane.Moving { return dataplane.Moving{Climbs: true} })
		}
	})
}

func (m *mode) WriteRows(io.Writer, string) error { return nil }

// seen counts what the observer was told.
type seen struct {
	cycles, drifts atomic.Int32
	counts         atomic.Pointer[agent.Counts]
	passes         atomic.Pointer[agent.Pass]
	drains         atomic.Pointer[dataplane.Drains]
}

func (s *seen) Pass(p agent.Pass)              { s.passes.Store(&p) }
func (s *seen) Cycle(agent.Cycle)              { s.cycles.Add(1) }
func (s *seen) Drift(dataplane.Drift)          { s.drifts.Add(1) }
func (s *seen) Tables([]dataplane.TableStatus) {}
func (s *seen) Drains(d dataplane.Drains)      { s.drains.Store(&d) }
func (s *seen) Counts(c agent.Counts)          { s.counts.Store(&c) }

// world is a loop over a real catalog and compiler and the mode above.
type world struct {
	*testing.T
	*catalog.Catalog
	mode   *mode
	host   *host
	health *health
	relay  *relays
	events *eventSink
	// lacks are the schedulers that the kernel refuses, and gue, with its error.
	lacks sync.Map     // string to error
	asked atomic.Int64 // how often the kernel was asked for one of them
	// settings are what the compiler goes by, but for the host.
	settings plan.Options
	seen     *seen
	loop     *agent.Agent
	logs     *observer.ObservedLogs
	stop     func()
}

func settings() plan.Options {
	return plan.Options{Node: "node-a", Scheduler: scheduler.MustParse("rr"), IPv4: true, IPv6: true, Relayed: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}}
}

// options are the settings on a host. Only the loop reads the settings.
func (w *world) options(h model.Host) plan.Options {
	o := w.settings
	o.Host, o.Zone = h, h.Node.Zone
	return o
}

// run starts a loop in a synctest bubble and ends it with the test.
func run(t *testing.T, m *mode, test func(w *world)) { runOn(t, m, m, test) }

// runOn is run with a mode behind which m stands.
func runOn(t *testing.T, m *mode, d dataplane.Dataplane, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		w := &world{T: t, mode: m, host: &host{}, health: &health{}, relay: &relays{}, events: &eventSink{}, settings: settings(), seen: &seen{}, logs: logs,
			Catalog: catalog.New(zap.NewNop(), "node-a", model.FromFile)}
		var prober agent.Prober
		if m.prober != nil {
			prober = m.prober(w)
		}
		w.loop = agent.New(agent.Options{
			Prober: prober, Log: zap.New(core), NodeName: "node-a", Catalog: w.Catalog, Mode: d, Receivers: agent.Receivers{Observer: w.seen, Health: w.health, Relay: w.relay, Events: w.events}, Periods: m.periods,
			Host: w.host, NodePorts: func(h model.Host) []netip.Addr { return plan.NodePortAddresses(plan.NodePortSelection{}, h) },
			Compiler: func(h model.Host) agent.Compiler { return plan.New(w.options(h)) },
			Affects: func(before, now model.Host) func(*model.Service, []*model.Slice) bool {
				return func(s *model.Service, behind []*model.Slice) bool {
					return w.options(now).Affects(w.options(before), s, behind)
				}
			},
			Probes: agent.Probes{
				GUE: func(context.Context) error {
					w.asked.Add(1)
					err, _ := w.lacks.Load("gue")
					refused, _ := err.(error)
					return refused
				},
				Scheduler: func(_ context.Context, s scheduler.Spec) error {
					w.asked.Add(1)
					err, _ := w.lacks.Load(s.Name())
					refused, _ := err.(error)
					return refused
				},
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.loop.Run(ctx) }()
		w.stop = func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("loop ended with %v", err)
			}
		}
		test(w)
		w.stop()
	})
}

// after lets time pass and returns what the loop did since, then drops it.
func (w *world) after(d time.Duration) []string {
	w.Helper()
	time.Sleep(d) // the bubble's clock
	synctest.Wait()
	var j []string
	w.mode.locked(func() { j, w.mode.journal = w.mode.journal, nil })
	return j
}

func (w *world) want(d time.Duration, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.after(d)); diff != "" {
		w.Errorf("calls (-want +got):\n%s", diff)
	}
}

func service(name, vip string) model.Service {
	return model.Service{
		ID: model.ServiceID{Origin: model.FromFile, Namespace: "default", Name: name}, Type: "ClusterIP",
		ClusterIPs: []netip.Addr{netip.MustParseAddr(vip)}, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
	}
}

func TestNothingIsWrittenBeforeTheSourcesAreInSync(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetService(service("a", "10.96.0.1"))
		w.want(time.Second)
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Second, "start", "load", "apply")
	})
}

// The first change may be taken alone if the loop is faster than the source; all later changes are
// batched.
func TestABurstIsTwoBatchesAtMost(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Second, "start", "load", "apply")
		for i := range 100 {
			w.SetService(service(fmt.Sprint(i), "10.96.0.1"))
		}
		calls := w.after(time.Second)
		s, err := w.loop.Status(w.Context())
		if err != nil || s.Last == nil || len(calls) < 1 || len(calls) > 2 || s.Cycles != uint64(len(calls)) || s.Services != 100 {
			w.Errorf("calls %q, status %+v, error %v", calls, s, err)
		}
	})
}

// Changes that arrive while the loop is busy are taken at once afterwards.
func TestWhatCameMeanwhileIsTakenAtOnce(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Second, "start", "load", "apply")
		hold := make(chan struct{})
		w.mode.locked(func() { w.mode.stall = hold })
		w.SetService(service("a", "10.96.0.1"))
		w.after(10 * time.Millisecond)
		w.SetService(service("b", "10.96.0.2"))
		w.after(10 * time.Millisecond)
		w.mode.locked(func() { w.mode.stall = nil })
		close(hold)
		w.want(time.Millisecond, "apply", "apply")
		if s, err := w.loop.Status(w.Context()); err != nil || s.Services != 2 {
			w.Errorf("status %+v, error %v", s, err)
		}
	})
}

// Under constant changes the loop is busy for at most half of the time, with larger batches; a
// single change after that is taken at once.
func TestManyChangesAreFewBatches(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Second, "start", "load", "apply")
		w.mode.locked(func() { w.mode.applyTakes = 20 * time.Millisecond })
		for i := range 1000 {
			w.SetService(service("a", fmt.Sprintf("10.96.%d.%d", i/250, i%250)))
			time.Sleep(time.Millisecond)
		}
		if applied := len(w.after(time.Second)); applied < 20 || applied > 30 {
			w.Errorf("%d batches of 20 ms in a second, want half of it", applied)
		}
		w.SetService(service("a", "10.96.9.1"))
		w.want(agent.DefaultCoalesce+20*time.Millisecond, "apply")
	})
}

// A change after a rest waits only for changes that are handed over with it; the next ones
// are batched.
func TestLoneChangeDoesNotWait(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Second, "start", "load", "apply")
		w.SetService(service("a", "10.96.0.1"))
		w.want(0, "apply")
		w.SetService(service("b", "10.96.0.2"))
		w.want(agent.DefaultCoalesce - time.Millisecond)
		w.SetService(service("c", "10.96.0.3"))
		w.want(time.Millisecond, "apply")
	})
}

// One by one, however many, each is written as it comes.
func TestNoneOfSingleChangesWaits(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Second, "start", "load", "apply")
		for i := range 20 {
			w.SetService(service("a", fmt.Sprintf("10.96.0.%d", i+1)))
			w.want(0, "apply")
			w.want(agent.DefaultCoalesce)
		}
	})
}

// With a least time between batches the first change after a rest is still served at
// once, and the others together when it is over.
func TestMinPeriod(t *testing.T) {
	m := newMode()
	m.periods.MinPeriod = 10 * time.Second
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Second, "start", "load", "apply")
		w.after(15 * time.Second)
		w.SetService(service("a", "10.96.0.1"))
		w.want(time.Second, "apply")
		w.SetService(service("b", "10.96.0.2"))
		w.SetService(service("c", "10.96.0.3"))
		w.want(8 * time.Second)
		w.want(2*time.Second, "apply")
	})
}

// Rows that are held back for pacing are written soon and are no failure.
func TestPacedRowsFollowSoon(t *testing.T) {
	m := newMode()
	m.paced = 4
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.want(time.Second, "start", "load", "apply", "apply", "apply", "apply")
		if s, err := w.loop.Status(w.Context()); err != nil || !s.Ready || s.Failures > 0 || s.LastError != "" {
			w.Errorf("status %+v, error %v", s, err)
		}
	})
}

func TestOrphansStayWhileInputCannotBeRead(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Partial)
		w.after(time.Second)
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.mode.locked(func() {
			if diff := cmp.Diff([]bool{true, false}, w.mode.keptOrphans); diff != "" {
				w.Errorf("orphans kept (-want +got):\n%s", diff)
			}
		})
	})
}

func TestFailureIsRetriedWithBackoffAndNothingElse(t *testing.T) {
	m := newMode()
	m.applyErr = errors.New("busy")
	run(t, m, func(w *world) {
		w.SetService(service("a", "10.96.0.1"))
		w.SetState(model.FromFile, source.Complete)
		w.want(50*time.Millisecond, "start", "load", "apply")
		w.want(100*time.Millisecond, "apply") // after 100 ms
		w.want(140 * time.Millisecond)
		w.want(100*time.Millisecond, "apply") // after 200 ms more
		if n := len(w.after(10 * time.Minute)); n < 30 || n > 50 {
			w.Errorf("%d calls in ten minutes, want a retry and an audit every 30 s", n)
		}
		s, _ := w.loop.Status(w.Context())
		if s.LastError != "busy" || s.Failures < 10 {
			w.Errorf("status %+v, want failing", s)
		}
		m.locked(func() { m.applyErr = nil })
		w.after(time.Minute)
		if s, _ = w.loop.Status(w.Context()); !s.Ready || s.LastError != "" || s.Failures != 0 {
			w.Errorf("status %+v, want all well", s)
		}
	})
}

// A cause that is over all of a sudden asks for a try within a second, however often it was there; the log is as with any other.
func TestCauseThatMayEndIsAskedForOften(t *testing.T) {
	m := newMode()
	m.applyErr = fmt.Errorf("write: %w", held{errors.New("locked")})
	run(t, m, func(w *world) {
		w.SetService(service("a", "10.96.0.1"))
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Minute)
		if n := len(w.after(time.Minute)); n < 60 || n > 65 {
			w.Errorf("%d calls in a minute, want one a second and an audit every 30 s", n)
		}
		if n := w.logs.FilterMessage("apply failed, will retry").Len(); n > 15 {
			w.Errorf("%d warnings in two minutes", n)
		}
		m.locked(func() { m.applyErr = nil })
		w.after(time.Second)
		if s, _ := w.loop.Status(w.Context()); s.LastError != "" {
			w.Errorf("a second after the end: %+v", s)
		}
	})
}

// held is an error that asks to be tried again soon.
type held struct{ error }

func (held) RetryWithin() time.Duration { return time.Second }

func TestKernelThatCannotBeReadIsNotWritten(t *testing.T) {
	m := newMode()
	m.loadErr = errors.New("interrupted")
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		for _, call := range w.after(time.Minute) {
			if call == "apply" {
				w.Fatal("written without knowing the kernel")
			}
		}
		m.locked(func() { m.loadErr = nil })
		if calls := w.after(time.Minute); !slices.Contains(calls, "apply") {
			w.Errorf("calls %v after recovery", calls)
		}
	})
}

func TestAuditRunsAndDriftIsRepairedAtOnce(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.want(28 * time.Second)
		w.want(2*time.Second, "audit")
		w.mode.locked(func() { w.mode.drift = dataplane.Drift{"servers": 2} })
		w.want(30*time.Second, "audit", "apply")
		s, _ := w.loop.Status(w.Context())
		if s.Audits != 2 || s.Drifted != 2 || w.seen.drifts.Load() != 1 {
			w.Errorf("status %+v, observer told %d times", s, w.seen.drifts.Load())
		}
	})
}

func TestUnchangedInputWritesNothing(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetService(service("a", "10.96.0.1"))
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.SetService(service("a", "10.96.0.1"))
		w.want(time.Second)
		if n := w.seen.cycles.Load(); n != 1 {
			w.Errorf("%d cycles, want 1", n)
		}
	})
}

func TestChangesDoNotDisturbTheBackoff(t *testing.T) {
	m := newMode()
	m.applyErr = errors.New("refused")
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.SetService(service("a", "10.96.0.1"))
		w.after(10 * time.Minute)
		w.after(25 * time.Second) // an appointment stands, none is due for a while
		w.logs.TakeAll()
		w.mode.locked(func() { w.mode.retried = nil })
		for i := range 100 {
			s := service("b", "10.96.0.2")
			s.Created = time.Unix(int64(i+1), 0)
			w.SetService(s)
			w.after(10 * time.Millisecond)
		}
		if n := w.logs.FilterMessage("apply failed, will retry").Len(); n > 3 {
			w.Errorf("%d warnings in a second of changes, want one for news at most", n)
		}
		w.mode.locked(func() {
			if retried := slices.Contains(w.mode.retried, true); retried {
				w.Error("a change retried what rests")
			}
		})
	})
}

// TestChangesDoNotPushTheRetryBack checks that a refused row is tried again after the backoff, however often something else
// changes meanwhile, and that changes do not double the backoff.
func TestChangesDoNotPushTheRetryBack(t *testing.T) {
	m := newMode()
	m.applyErr = errors.New("refused")
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.SetService(service("a", "10.96.0.1"))
		w.after(10 * time.Millisecond)
		m.locked(func() { m.retried = nil })
		for i := range 75 { // 750 ms, in which retries are due after 100, 200 and 400 ms
			s := service("b", "10.96.0.2")
			s.Created = time.Unix(int64(i+1), 0)
			w.SetService(s)
			w.after(10 * time.Millisecond)
		}
		m.locked(func() {
			retries := 0
			for _, retry := range m.retried {
				if retry {
					retries++
				}
			}
			if retries != 3 || len(m.retried) < 75 {
				w.Errorf("%d retries among %d passes, want 3 among 75 or more", retries, len(m.retried))
			}
		})
	})
}

// TestChangesDoNotReadAnUnreadableKernel checks that a kernel that cannot be read is read again after the backoff, and not
// at each change.
func TestChangesDoNotReadAnUnreadableKernel(t *testing.T) {
	m := newMode()
	m.loadErr = errors.New("interrupted")
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(10 * time.Minute)
		w.after(25 * time.Second) // an appointment stands, none is due for a while
		for i := range 10 {
			s := service("a", "10.96.0.1")
			s.Created = time.Unix(int64(i+1), 0)
			w.SetService(s)
			w.want(10 * time.Millisecond)
		}
	})
}

func TestZoneOfTheNodeReplansEverything(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetService(service("a", "10.96.0.1"))
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		w.mode.locked(func() { clear(w.mode.plans) })
		w.SetNode(model.FromFile, model.Node{Name: "node-a", Zone: "east"})
		w.after(time.Second)
		w.mode.locked(func() {
			if len(w.mode.plans) != 1 || w.mode.host.Node.Zone != "east" {
				w.Errorf("%d plans, node %+v", len(w.mode.plans), w.mode.host.Node)
			}
		})
	})
}

func TestRepairsOfOneMomentAreOneBatch(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(5 * time.Second)
		broken := errors.New("cannot be read")
		for range 3 {
			err := w.loop.Repair(w.Context(), func(context.Context) error {
				w.mode.locked(func() { w.mode.dirty++ })
				return broken
			})
			if !errors.Is(err, broken) {
				w.Errorf("error %v", err)
			}
		}
		w.want(10*time.Millisecond, "apply")
	})
}

func TestRepairsDoNotFight(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(5 * time.Second)
		for range 500 { // another program takes away what was repaired, each 10 ms
			_ = w.loop.Repair(w.Context(), func(context.Context) error {
				w.mode.locked(func() { w.mode.dirty++ })
				return nil
			})
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(w.after(time.Second)); n > 8 {
			w.Errorf("%d repairs in five seconds, want about one a second", n)
		}
	})
}

func TestDoFailsWhenTheLoopIsGone(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.stop()
		w.stop = func() {}
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err := w.loop.Status(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("error %v", err)
		}
	})
}

func TestReasonsAreLoggedOnceAChange(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		s := service("a", "10.96.0.1")
		s.Type, s.ClusterIPs = "ExternalName", nil
		w.SetService(s)
		w.after(time.Second)
		s.Created = time.Unix(1, 0)
		w.SetService(s) // another change, the same reason
		w.after(time.Second)
		if n := w.logs.FilterMessage("service skipped").Len(); n != 1 {
			w.Errorf("%d lines about the skipped service, want 1", n)
		}
		w.DeleteService(s.ID)
		w.after(time.Second)
		if st, _ := w.loop.Status(w.Context()); st.Skipped != 0 || st.Services != 0 {
			w.Errorf("status %+v after deletion", st)
		}
	})
}

// A new Service is written with its first slice, or without one when none comes. A
// batch that had nothing but what waits does not begin the least time between two.
func TestNewServiceAwaitsItsSlice(t *testing.T) {
	m := newMode()
	m.periods.MinPeriod = time.Minute
	run(t, m, func(w *world) {
		w.SetEndpointGrace(10 * time.Second)
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Hour)
		for _, name := range []string{"a", "b"} {
			w.SetService(service(name, "10.96.0.1"))
			w.after(5 * time.Second)
			if _, written := w.planned()[name]; written {
				w.Errorf("%s was written before its slice", name)
			}
			if name == "a" {
				w.SetSlice(model.Slice{ID: model.SliceID{Origin: model.FromFile, Namespace: "default", Name: name}, Service: service(name, "10.96.0.1").ID})
				w.after(time.Second)
			} else {
				w.after(6 * time.Second)
			}
			if _, written := w.planned()[name]; !written {
				w.Errorf("%s was not written", name)
			}
			w.after(time.Hour)
		}
	})
}
