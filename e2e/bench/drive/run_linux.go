package drive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/crowd"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/meter"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/world"
)

// Run measures all cells and writes each as it becomes known. A candidate that fails costs its own cells, and is an error in the end.
func Run(ctx context.Context, o Options) error {
	if err := errors.Join(o.Validate(), os.MkdirAll(o.Out, 0o755)); err != nil {
		return err
	}
	api, err := crowd.Open(ctx, o.Endpoints, o.Log)
	if err != nil {
		return err
	}
	defer func() { _ = api.Close() }() // its processes end with this one in any case
	m := meter.New()
	defer m.Close()
	o.say("processes are counted by %s", m.LaunchesBy())
	warm(ctx, o, api, m)
	var errs []error
	for _, n := range o.Services {
		if err := api.Grow(ctx, n); err != nil {
			return err
		}
		o.say("%d Services with %d endpoints each are in the API", n, o.Endpoints)
		for _, c := range o.Candidates {
			err := measure(ctx, o.of(c), api, m, n, c)
			if err = errors.Join(err, ctx.Err()); ctx.Err() != nil {
				return err
			}
			if err != nil {
				o.say("%s, %d Services: %v", c.Name, n, err)
				errs = append(errs, fmt.Errorf("%s, %d Services: %w", c.Name, n, err))
			}
			if err := api.Restore(ctx); err != nil {
				return errors.Join(append(errs, err)...)
			}
		}
	}
	return errors.Join(errs...)
}

// run is a candidate on its node.
type run struct {
	Options
	api     *crowd.Crowd
	world   *world.World
	subject *meter.Subject
	cell    *cell.Cell
	n       int
	random  *rand.Rand // the same for each candidate
	// arrivals follows the probes beside the candidate, and told is how long changes took to get there.
	arrivals *crowd.Arrivals
	told     []cell.Wait
}

// measure gives a candidate a world and measures what happens there.
func measure(ctx context.Context, o Options, api *crowd.Crowd, m *meter.Meter, n int, c Candidate) error {
	return onNode(ctx, api, func(w *world.World, dir string) error { return measureOn(ctx, o, api, m, n, c, w, dir) })
}

func measureOn(ctx context.Context, o Options, api *crowd.Crowd, m *meter.Meter, n int, c Candidate, w *world.World, dir string) (err error) {
	r := &run{Options: o, api: api, world: w, n: n, random: rand.New(rand.NewPCG(1, uint64(n)))}
	r.cell = &cell.Cell{Candidate: c.Name, Services: n, Endpoints: o.Endpoints, Began: time.Now(), Machine: meter.Describe(), LaunchesBy: m.LaunchesBy()}
	if r.cell.Before, err = r.calibrate(); err != nil {
		return err
	}
	if r.arrivals, err = api.WatchProbes(ctx); err != nil {
		return err
	}
	defer r.arrivals.Stop()
	saved := errors.New("the candidate has not started")
	err = r.withCandidate(ctx, m, c, dir, func() error {
		if err := r.start(ctx); err != nil {
			return err
		}
		if r.wants("limit") {
			saved = r.saveRows(ctx, dir)
		}
		return r.parts(ctx)
	})
	if err != nil {
		r.cell.Skip("rest", err.Error())
	}
	after, calibrated := r.calibrate()
	r.cell.After = after
	if r.wants("limit") {
		if saved == nil {
			saved = r.limit(ctx, dir)
		}
		if saved != nil {
			r.cell.Skip("limit", saved.Error())
		} else if err := r.startUnasked(ctx, m, c); err != nil {
			r.cell.Skip("start-unasked", err.Error())
		}
	}
	if r.wants("start-netlink") {
		if err := r.countStart(ctx, m, c); err != nil {
			r.cell.Skip("start-netlink", err.Error())
		}
	}
	return errors.Join(err, calibrated, r.cell.Save(o.Out))
}

// calibrate measures the machine when it is quiet.
func (r *run) calibrate() (*cell.Calibration, error) {
	busy, err := meter.Settle(r.Settle)
	if err != nil {
		return nil, err
	}
	if busy > 0.1 {
		r.say("others use %.0f %% of the machine", 100*busy)
	}
	return meter.Calibrate()
}

// withCandidate runs the candidate on the node while f runs.
func (r *run) withCandidate(ctx context.Context, m *meter.Meter, c Candidate, dir string, f func() error) (err error) {
	listener, err := r.world.Listen("127.0.0.1:6443")
	if err != nil {
		return err
	}
	relaying, stop := context.WithCancel(ctx)
	var relay sync.WaitGroup
	relay.Go(func() { world.Relay(relaying, listener, r.api.Server()) })
	defer relay.Wait()
	defer stop()
	line, err := r.commandLine(ctx, c, dir, listener.Addr().String())
	if err != nil {
		return err
	}
	output, err := os.Create(filepath.Join(dir, r.cell.Candidate+".log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.keep(output)) }()
	cmd := exec.Command("sh", "-c", "exec "+line)
	cmd.Stdout, cmd.Stderr = output, output
	r.cell.Command = cmd.Args
	if r.subject, err = m.Start(cmd, r.world.Node.Do); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.subject.Stop()) }()
	return f()
}

// keep copies what a candidate has printed to the cells. It is written elsewhere at first: they may be on a disk that is far away, and a
// program that prints waits for it.
func (r *run) keep(output *os.File) error {
	defer func() { _ = output.Close() }() // nothing is written to it any more
	text, err := os.ReadFile(output.Name())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.Out, fmt.Sprintf("cell-%05d-%s.log", r.n, r.cell.Candidate)), text, 0o644)
}

// commandLine writes the files that a candidate wants, and fills them in.
func (r *run) commandLine(ctx context.Context, c Candidate, dir, near string) (string, error) {
	text, err := r.api.Kubeconfig(ctx, near)
	if err != nil {
		return "", err
	}
	// As in a pod, the configuration is alone in its directory: whoever watches that is not woken by what a candidate prints.
	kubeconfig, own, conf := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "own"), filepath.Join(dir, "conf")
	if err := errors.Join(os.WriteFile(kubeconfig, text, 0o600), os.Mkdir(own, 0o755), os.Mkdir(conf, 0o755)); err != nil {
		return "", err
	}
	values := map[string]string{"kubeconfig": kubeconfig, "node": crowd.Node, "dir": own, "kube-ipvs": r.KubeIPVS, "kube-proxy": r.KubeProxy}
	for _, mode := range modes {
		path := filepath.Join(conf, mode+".conf")
		if err := os.WriteFile(path, []byte(proxyConfig(mode, kubeconfig, world.ClusterCIDR)), 0o644); err != nil {
			return "", err
		}
		values["config-"+mode] = path
	}
	return c.fill(values)
}

// parts measures one after the other, and keeps what is known after each.
func (r *run) parts(ctx context.Context) error {
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{
		{"idle", r.idle}, {"endpoint", r.endpoint}, {"service", r.service}, {"packets", r.packets}, {"netlink", r.netlink}, {"roll", r.roll}, {"churn", r.churn}, {Soaking, r.soak},
	} {
		if !r.wants(part.name) {
			continue
		}
		if r.cell.Start.Quiet.Over {
			r.cell.Skip(part.name, fmt.Sprintf("the start was not over after %s", r.Limit))
			continue
		}
		if err := part.measure(ctx); err != nil {
			if ended := cmp.Or(r.subject.Alive(), ctx.Err()); ended != nil {
				return fmt.Errorf("%s: %w", part.name, ended)
			}
			r.say("%s, %d Services: %s: %v", r.cell.Candidate, r.n, part.name, err)
			r.cell.Skip(part.name, err.Error())
		}
		if err := r.cell.Save(r.Out); err != nil {
			return err
		}
	}
	return r.subject.Alive()
}

// used measures the cost of f, until the candidate rests.
func (r *run) used(ctx context.Context, f func() error) (cost cell.Cost, last time.Time, over bool, err error) {
	before, err := r.subject.Cost()
	if err != nil {
		return cost, last, over, err
	}
	if err := f(); err != nil {
		return cost, last, over, err
	}
	if last, over, err = r.subject.Rest(ctx, shortRest, r.Limit); err != nil {
		return cost, last, over, err
	}
	after, err := r.subject.Cost()
	return after.Sub(before), last, over, err
}

// How long a candidate that has done its work rests: after a change, so long that one that gathers changes for a second (kube-proxy's
// minSyncPeriod, but in ipvs mode) takes the next at once; and after a start.
const (
	shortRest = 1100 * time.Millisecond
	longRest  = 3 * time.Second
)

// since is a time that was waited for.
func since(start, at time.Time) cell.Wait {
	return cell.Wait{Seconds: cell.Took(max(at.Sub(start), 0))}
}

// waited turns what Until returns into a Wait.
func (r *run) waited(start, at time.Time, err error) (cell.Wait, error) {
	if errors.Is(err, world.ErrNotInTime) {
		w := since(start, at)
		w.Over = true
		return w, r.subject.Alive()
	}
	return since(start, at), err
}

// pauseFor waits.
func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
