package run

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

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/apiload"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/topology"
)

// Run measures all candidates and writes each result as it becomes known. A candidate that fails does not stop the others, and is an error
// in the end.
func Run(ctx context.Context, o Options) error {
	if err := errors.Join(o.Validate(), os.MkdirAll(o.Out, 0o755)); err != nil {
		return err
	}
	api, err := apiload.Open(ctx, o.Endpoints, o.Log)
	if err != nil {
		return err
	}
	defer func() { _ = api.Close() }() // its processes end with this one in any case
	warm(ctx, o, api)
	var errs []error
	for _, n := range o.Services {
		if err := api.Grow(ctx, n); err != nil {
			return err
		}
		o.say("%d Services with %d endpoints each are in the API", n, o.Endpoints)
		for _, c := range o.Candidates {
			err := onNode(ctx, api, func(node *topology.Network, dir string) error {
				return newSession(o, api, node, dir, n, c).measure(ctx)
			})
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

// session is a candidate on its node.
type session struct {
	Options
	api       *apiload.Load
	network   *topology.Network
	candidate Candidate
	dir       string // a temporary directory
	n         int    // Services
	random    *rand.Rand
	process   *measure.Process
	result    *report.Result
	// arrivals follows the probes beside the candidate, and told holds the times at which changes arrived there.
	arrivals *apiload.Arrivals
	told     []measure.Wait
}

func newSession(o Options, api *apiload.Load, network *topology.Network, dir string, n int, c Candidate) *session {
	return &session{
		Options: o, api: api, network: network, candidate: c, dir: dir, n: n, random: rand.New(rand.NewPCG(1, uint64(n))), // equal for each candidate
		result: &report.Result{Candidate: c.Name, Services: n, Endpoints: o.Endpoints, Began: time.Now(), Machine: measure.Describe()},
	}
}

// log writes a line about the candidate.
func (s *session) log(format string, args ...any) {
	s.say("%s, %d Services: "+format, append([]any{s.candidate.Name, s.n}, args...)...)
}

// measure starts the candidate and measures all parts.
func (s *session) measure(ctx context.Context) error {
	if err := s.speed(); err != nil {
		return err
	}
	var err error
	if s.arrivals, err = s.api.WatchProbes(ctx); err != nil {
		return err
	}
	defer s.arrivals.Stop()
	err = s.withCandidate(ctx, func() error {
		if err := s.start(ctx); err != nil {
			return err
		}
		return s.parts(ctx)
	})
	if err != nil {
		s.result.Skip("rest", err.Error())
	}
	return errors.Join(err, s.speed(), s.result.Save(s.Out))
}

// speed measures the idle machine.
func (s *session) speed() error {
	busy, err := measure.Settle(s.Settle)
	if err != nil {
		return err
	}
	if busy > 0.1 {
		s.log("other programs use %.0f %% of the machine", 100*busy)
	}
	s.result.Speeds = append(s.result.Speeds, measure.Speed())
	return nil
}

// withCandidate runs the candidate on the node while f runs.
func (s *session) withCandidate(ctx context.Context, f func() error) (err error) {
	listener, err := s.network.Listen("127.0.0.1:6443")
	if err != nil {
		return err
	}
	relaying, stop := context.WithCancel(ctx)
	var relay sync.WaitGroup
	relay.Go(func() { topology.Relay(relaying, listener, s.api.Server()) })
	defer relay.Wait()
	defer stop()
	line, err := s.commandLine(ctx, listener.Addr().String())
	if err != nil {
		return err
	}
	output, err := os.Create(filepath.Join(s.dir, "output"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.keep(output)) }()
	cmd := exec.Command("sh", "-c", "exec "+line)
	cmd.Stdout, cmd.Stderr = output, output
	s.result.Command = cmd.Args
	if s.process, err = measure.Start(cmd, s.network.Node.Do); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.process.Stop()) }()
	return f()
}

// keep copies the candidate's output beside its result. The output is first written elsewhere, because the directory of results may be on a
// slow share, and a program waits for what it prints.
func (s *session) keep(output *os.File) error {
	defer func() { _ = output.Close() }() // the candidate has ended
	text, err := os.ReadFile(output.Name())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.Out, fmt.Sprintf("output-%05d-%s.log", s.n, s.candidate.Name)), text, 0o644)
}

// commandLine writes the files that a candidate needs, and fills them in.
func (s *session) commandLine(ctx context.Context, server string) (string, error) {
	text, err := s.api.Kubeconfig(ctx, server)
	if err != nil {
		return "", err
	}
	// As in a pod, the configuration is alone in its directory, so output does not wake a program that watches the directory.
	kubeconfig, own, conf := filepath.Join(s.dir, "kubeconfig"), filepath.Join(s.dir, "own"), filepath.Join(s.dir, "conf")
	if err := errors.Join(os.WriteFile(kubeconfig, text, 0o600), os.Mkdir(own, 0o755), os.Mkdir(conf, 0o755)); err != nil {
		return "", err
	}
	values := map[string]string{"kubeconfig": kubeconfig, "node": apiload.Node, "dir": own, "kube-ipvs": s.KubeIPVS, "kube-proxy": s.KubeProxy}
	for _, mode := range modes {
		path := filepath.Join(conf, mode+".conf")
		if err := os.WriteFile(path, []byte(proxyConfig(mode, kubeconfig, topology.ClusterCIDR)), 0o644); err != nil {
			return "", err
		}
		values["config-"+mode] = path
	}
	return s.candidate.fill(values)
}

// parts measures one part after the other, and saves the result after each.
func (s *session) parts(ctx context.Context) error {
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{{"idle", s.idle}, {"endpoint", s.endpoint}, {"service", s.service}, {"traffic", s.traffic}, {"roll", s.roll}, {"churn", s.churn}} {
		if !s.wants(part.name) {
			continue
		}
		if s.result.Start.Quiet.Over {
			s.result.Skip(part.name, fmt.Sprintf("the start was not over after %s", s.Limit))
			continue
		}
		if err := part.measure(ctx); err != nil {
			if ended := cmp.Or(s.process.Alive(), ctx.Err()); ended != nil {
				return fmt.Errorf("%s: %w", part.name, ended)
			}
			s.log("%s: %v", part.name, err)
			s.result.Skip(part.name, err.Error())
		}
		if err := s.result.Save(s.Out); err != nil {
			return err
		}
	}
	return s.process.Alive()
}

// used measures the cost of f until the candidate rests.
func (s *session) used(ctx context.Context, f func() error) (cost measure.Cost, last time.Time, over bool, err error) {
	before, err := s.process.Cost()
	if err != nil {
		return cost, last, over, err
	}
	if err := f(); err != nil {
		return cost, last, over, err
	}
	if last, over, err = s.process.Rest(ctx, shortRest, s.Limit); err != nil {
		return cost, last, over, err
	}
	after, err := s.process.Cost()
	return after.Sub(before), last, over, err
}

// A candidate rests for shortRest after a change, so that a program that batches changes for a
// second (kube-proxy's minSyncPeriod outside of ipvs mode) takes the next one at once. It rests for
// longRest after a start.
const (
	shortRest = 1100 * time.Millisecond
	longRest  = 3 * time.Second
)

// waited turns what Until returns into a Wait.
func (s *session) waited(start, at time.Time, err error) (measure.Wait, error) {
	w := measure.Since(start, at)
	if errors.Is(err, topology.ErrNotInTime) {
		w.Over = true
		return w, s.process.Alive()
	}
	return w, err
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
