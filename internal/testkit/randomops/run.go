package randomops

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

// Node is where a walk takes place: a driver, and manifests that its agents read.
type Node interface {
	scenario.Driver
	// Put replaces a manifest in one step, Remove takes one away.
	Put(name, text string) error
	Remove(name string) error
}

// NewFakes returns a node on fakes whose agents are fed, which spares the time that
// files take to be noticed.
func NewFakes() Node {
	feed := scenario.NewFeed()
	return fed{scenario.NewFedFakes(feed), feed}
}

type fed struct {
	*scenario.Fakes
	feed *scenario.Feed
}

func (f fed) Put(name, text string) error {
	f.feed.Put(name, text)
	return nil
}

func (f fed) Remove(name string) error {
	f.feed.Remove(name)
	return nil
}

// OnDisk makes a node of a driver whose agents read work/manifests.
func OnDisk(d scenario.Driver, work string) (Node, error) {
	dir := filepath.Join(work, "manifests")
	return disk{d, dir}, os.Mkdir(dir, 0o755)
}

type disk struct {
	scenario.Driver
	dir string
}

func (d disk) Put(name, text string) error {
	hidden := filepath.Join(d.dir, ".new")
	if err := os.WriteFile(hidden, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(hidden, filepath.Join(d.dir, name))
}

// Stop waits until the agent can be asked: a process that has hardly begun dies of a signal
// that it would obey a moment later.
func (d disk) Stop() error {
	interval, deadline := d.Pace()
	for until := time.Now().Add(deadline); ; time.Sleep(interval) {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		_, err := d.Status(ctx)
		cancel()
		if err == nil {
			return d.Driver.Stop()
		}
		if time.Now().After(until) {
			return fmt.Errorf("stop an agent that does not answer: %w", err)
		}
	}
}

func (d disk) Remove(name string) error { return os.Remove(filepath.Join(d.dir, name)) }

// Count counts the operations and quiet points so far. It may be shared by many runs.
type Count struct{ Ops, Quiet atomic.Int64 }

// Failure is where a walk ended.
type Failure struct {
	// At is the index of the operation that failed, among those that can be done; -1 is the start.
	At  int
	Err error
	Log string // the end of what agents logged
}

// Error implements error.
func (f *Failure) Error() string { return fmt.Sprintf("operation %d: %v", f.At+1, f.Err) }

// firstAddress is the machine's until the walk changes that.
const firstAddress = "192.0.2.1"

// anchor lets no agent start without manifests: it would wait; see the scenario
// empty-directory-keeps-kernel.
const (
	anchorFile = "anchor.yaml"
	anchor     = "apiVersion: v1\nkind: Service\nmetadata: {namespace: kube-system, name: anchor}\nspec: {clusterIP: None}\n"
	// spoilt is no manifest.
	spoilt = "kind: ["
)

// Run does a walk on a fresh node, which it closes. At a quiet point all must agree within
// patience; nil means that they always did.
func Run(node Node, w Walk, patience time.Duration, count *Count) *Failure {
	defer node.Close()
	r := runner{node: node, comparator: scenario.NewComparator(node), walk: w, state: w.begin(), patience: patience}
	fail := func(at int, err error) *Failure {
		log := node.Log()
		return &Failure{At: at, Err: err, Log: log[max(0, len(log)-8000):]}
	}
	if err := r.begin(); err != nil {
		return fail(-1, err)
	}
	for i, o := range w.feasible() {
		if err := r.do(o); err != nil {
			return fail(i, fmt.Errorf("%s: %w", o, err))
		}
		r.state.follow(o)
		count.Ops.Add(1)
		if o.Verb == Quiet {
			count.Quiet.Add(1)
		}
	}
	return nil
}

type runner struct {
	node       Node
	comparator *scenario.Comparator
	walk       Walk
	state      *state
	patience   time.Duration
}

func (r *runner) begin() error {
	if err := addresses([]string{firstAddress}, r.node.Host); err != nil {
		return err
	}
	if r.walk.Foreign {
		r.putForeign()
		if err := r.comparator.Foreign(); err != nil {
			return err
		}
	}
	if err := r.node.Put(anchorFile, anchor); err != nil {
		return err
	}
	return r.node.Start(r.start())
}

// putForeign runs the foreign commands; an object that exists already is no error.
func (r *runner) putForeign() {
	for _, line := range foreign {
		_ = r.node.Tool(strings.Fields(line))
	}
}

func (r *runner) start() scenario.Start { return scenario.Start{Audit: true, Flags: r.state.flags} }

func (r *runner) do(o Operation) error {
	switch o.Verb {
	case Put:
		return r.node.Put(o.Args[0], o.Text)
	case Remove:
		return r.node.Remove(o.Args[0])
	case Spoil:
		return r.node.Put(o.Args[0], spoilt)
	case Host:
		return addresses(o.Args, r.node.Host)
	case Hops:
		return addresses(o.Args, r.node.Gateway)
	case Stop:
		return r.restart(r.node.Stop, o)
	case Kill:
		return r.restart(r.node.Kill, o)
	case Fault:
		return r.node.Fault(o.Args[0], o.Args[1:])
	case Damage:
		_ = r.node.Tool(o.Args) // the object to damage may not be there
		if r.walk.Foreign && flushes(o.Args) {
			r.putForeign()
		}
		return nil
	case Look:
		r.look()
		return nil
	case Quiet:
		return r.quiet()
	}
	return fmt.Errorf("no operation %q", o.Verb)
}

func addresses(texts []string, do func([]netip.Addr) error) error {
	addrs := make([]netip.Addr, len(texts))
	for i, text := range texts {
		addrs[i] = netip.MustParseAddr(text)
	}
	return do(addrs)
}

func (r *runner) restart(end func() error, o Operation) error {
	if err := end(); err != nil {
		return err
	}
	return r.node.Start(scenario.Start{Audit: true, Flags: o.Args})
}

// quiet ends what stands in the way and waits for all accounts to agree.
func (r *runner) quiet() error {
	r.node.Heal()
	for _, name := range r.state.bad() {
		if err := r.node.Remove(name); err != nil {
			return err
		}
	}
	return r.comparator.Agree(r.start(), r.patience)
}

// look waits for the loop to come round; one that does not answer is judged when all is quiet.
func (r *runner) look() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = r.node.Status(ctx)
}
