package scenario

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// Fakes is a node without a kernel: agents in this process, one at a time, over
// fakes that outlive them.
type Fakes struct {
	in     inputs
	kernel *kernel
	tap    *faultProxy
	log    logBuffer

	mu   sync.Mutex // guards the agent's life, which a planned crash changes, too
	proc *process
	last Start
	rose bool // an agent crashed, and another has taken its place
	// Audited makes every agent look for drift, whatever its scenario sets.
	audited     bool
	statusProbe statusProbe
	metrics     *telemetry.Metrics // metrics of the last agent
}

var _ Driver = (*Fakes)(nil)

var errNotRunning = errors.New("no agent is running")

// NewFakes returns an empty node whose agents read work/manifests.
func NewFakes(work string) *Fakes { return newFakes(onDisk{filepath.Join(work, "manifests")}) }

// NewFedFakes returns an empty node whose agents are fed. It keeps the end of what
// they log alone, for it may live long.
func NewFedFakes(feed *Feed) *Fakes {
	f := newFakes(feed)
	f.log.most = mostLog
	return f
}

// mostLog is how many bytes of a log are kept where not all are, twice that for moments.
const mostLog = 32 << 10

func newFakes(in inputs) *Fakes {
	f := &Fakes{in: in, kernel: newKernel(), tap: newFaultProxy()}
	f.tap.crash = f.rise
	return f
}

// Trouble is a fault that a scenario does not know of.
type Trouble struct {
	// Package and Call say which call is the first that it may hit, counted from the node's
	// beginning.
	Package string
	Call    int
	Kind    FaultKind
	// Times is how many calls it hits; 0 is all of the package until the agent has told of it.
	Times int
	// Row hits one row of a write alone, instead of calls.
	Row bool
}

// Trouble plans a fault, and all agents audit, as what fails in a repair is left to them.
func (f *Fakes) Trouble(t Trouble) {
	f.audited = true
	if t.Times == 0 {
		t.Times = endless
	}
	f.tap.struck = f.statusProbe.begin(f)
	f.tap.add(&fault{pkg: t.Package, from: t.Call, times: t.Times, kind: t.Kind, one: t.Row, trouble: true})
}

// CrashAtCall makes the agent die at the nth call of a kernel package, in the middle of it
// if it writes rows, and start again.
func (f *Fakes) CrashAtCall(pkg string, nth int) {
	f.audited = true
	f.tap.add(&fault{pkg: pkg, from: nth, times: 1, crash: true})
}

// Struck reports whether the planned fault has hit. It is asked when the script is over.
func (f *Fakes) Struck() bool { return f.statusProbe.struck.Load() }

// Told reports whether the agent has reported a lasting failure; other failures ended by
// themselves. It is asked when the script is over.
func (f *Fakes) Told() bool { return f.statusProbe.told.Load() }

// StatusFaults is what the agent failed to do in its trouble: to answer, and to tell of it. It
// is asked when the script is over.
func (f *Fakes) StatusFaults() error { return f.statusProbe.verdict() }

// Calls is how many calls each kernel package had.
func (f *Fakes) Calls() map[string]int { return f.tap.counts() }

// Start implements Driver.
func (f *Fakes) Start(s Start) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.proc != nil {
		return errors.New("an agent is running already")
	}
	s.Audit = s.Audit || f.audited
	f.last = s
	return f.start()
}

func (f *Fakes) start() error {
	c, err := settings(f.in.path(), f.last)
	if err != nil {
		return err
	}
	f.tap.revive()
	f.metrics = telemetry.New()
	f.proc = startProcess(f.log.logger(), c, f.last, f.in, f.kernel, f.tap, f.metrics)
	return nil
}

// rise brings an agent that has crashed back.
func (f *Fakes) rise() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.proc == nil {
		return // the script was faster to end it
	}
	_ = f.proc.stop() // it is dead already
	if err := f.start(); err != nil {
		panic(err) // the same flags were good before
	}
	f.rose = true
}

// Rose reports whether an agent has crashed and another one runs in its place.
func (f *Fakes) Rose() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rose
}

// Stop implements Driver.
func (f *Fakes) Stop() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.proc == nil {
		return errNotRunning
	}
	p := f.proc
	f.proc = nil
	return p.stop()
}

// Kill implements Driver: no call reaches the kernel any more from here on.
func (f *Fakes) Kill() error {
	f.tap.kill()
	return f.Stop()
}

// Status implements Driver.
func (f *Fakes) Status(ctx context.Context) (agent.Status, error) {
	var s agent.Status
	err := f.ask(ctx, func(ctx context.Context, p *process) (err error) {
		s, err = p.loop.Status(ctx)
		return err
	})
	return s, err
}

// ask has the running agent answer before ctx ends; a dead one does not.
func (f *Fakes) ask(ctx context.Context, question func(context.Context, *process) error) error {
	f.mu.Lock()
	p := f.proc
	f.mu.Unlock()
	if p == nil {
		return errNotRunning
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	return question(ctx, p)
}

// Rows implements Driver.
func (f *Fakes) Rows(ctx context.Context) (map[string]string, error) {
	type answer struct {
		rows map[string]string
		err  error
	}
	answers := make(chan answer, 1)
	err := f.ask(ctx, func(ctx context.Context, p *process) error {
		return p.loop.Do(ctx, func(context.Context) {
			rows, err := rowsOf(p.mode, KindsOf(p.mode.Name()))
			answers <- answer{rows, err}
		})
	})
	if err != nil {
		return nil, err
	}
	a := <-answers
	return a.rows, a.err
}

// Metrics are those of the last agent, as it serves them.
func (f *Fakes) Metrics() string {
	f.mu.Lock()
	m := f.metrics
	f.mu.Unlock()
	if m == nil {
		return ""
	}
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

// Log implements Driver.
func (f *Fakes) Log() string { return f.log.String() }

// Text implements Driver.
func (f *Fakes) Text(kind string) (string, error) { return f.kernel.text(kind) }

// Tool implements Driver.
func (f *Fakes) Tool(args []string) error { return f.kernel.tool(args) }

// Host implements Driver.
func (f *Fakes) Host(addrs []netip.Addr) error { return f.kernel.setHost(addrs) }

// Gateway implements Driver.
func (f *Fakes) Gateway(hops []netip.Addr) error {
	f.kernel.links.SetGateways(hops...)
	return nil
}

// Failing implements Driver.
func (f *Fakes) Failing(endpoints map[netip.AddrPort]string) error {
	f.kernel.failing.Store(&endpoints)
	err := f.ask(context.Background(), func(ctx context.Context, p *process) error { return p.loop.SetFailing(ctx, endpoints) })
	if errors.Is(err, context.Canceled) {
		return nil // the agent died, and the next one finds the same
	}
	return err
}

// Plan implements Driver.
func (f *Fakes) Plan(s Start) (map[string]string, error) {
	c, err := settings(f.in.path(), s)
	if err != nil {
		return nil, err
	}
	host, err := f.kernel.host()
	if err != nil {
		return nil, err
	}
	return planned(c, f.in, host, f.kernel.remembered())
}

// Cleanup implements Driver. Like an operator it tries twice.
func (f *Fakes) Cleanup(s Start) error {
	c, err := settings(f.in.path(), s)
	if err != nil {
		return err
	}
	f.statusProbe.leave(f) // no later report is possible
	f.tap.revive()
	deps := f.kernel.deps(f.tap)
	deps.Announced = f.kernel.announced(c, f.tap)
	if err = cleanUp(context.Background(), c, deps); err != nil && f.audited {
		f.tap.revive()
		err = cleanUp(context.Background(), c, deps)
	}
	return err
}

// Fault implements Driver.
func (f *Fakes) Fault(pkg string, spec []string) error { return f.tap.plan(pkg, spec) }

// Heal implements Driver.
func (f *Fakes) Heal() { f.tap.heal() }

// Pace implements Driver.
func (f *Fakes) Pace() (interval, deadline time.Duration) {
	return 2 * time.Millisecond, time.Minute
}

// Close implements Driver.
func (f *Fakes) Close() {
	f.statusProbe.leave(f)
	_ = f.Stop()
}

// logBuffer keeps what agents log, in the format of --logging-format=text.
type logBuffer struct {
	most int // how many bytes of its end are kept; 0 is all

	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) logger() *zap.Logger {
	e := zap.NewProductionEncoderConfig()
	e.EncodeDuration = zapcore.StringDurationEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(e), zapcore.AddSync(b), zap.DebugLevel))
}

// Write implements io.Writer.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most > 0 && b.text.Len() > 2*b.most {
		b.text.Next(b.text.Len() - b.most)
	}
	return b.text.Write(p)
}

// String is everything so far.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
