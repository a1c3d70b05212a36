package packet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/races"
	"github.com/kube-ipvs/kube-ipvs/e2e/transcript"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// proxy is a kube-ipvs on a node: its manifests, its flags, and its process while one runs.
type proxy struct {
	*node
	manifests string
	flags     []string
	client    *inspect.Client

	process *exec.Cmd
	output  *transcript.Transcript
	ended   chan error
}

// newAgent gives a node an agent that is not running yet. Its rows in the kernel disappear with the
// node. There are no audits, and iptables has its nft backend, unless flags say otherwise.
// KUBE_IPVS_E2E_RULES sets --rules.
func newAgent(t *testing.T, on *node, flags ...string) *proxy {
	t.Helper()
	n := &proxy{node: on, manifests: t.TempDir(), output: &transcript.Transcript{}}
	run := t.TempDir()
	n.flags = append([]string{
		"--source-dir", n.manifests, "--hostname-override", on.name, "--run-dir", run, "--ipvs-sync-period", "1h",
		"--iptables-backend", "nft",
	}, flags...)
	if rules := os.Getenv("KUBE_IPVS_E2E_RULES"); rules != "" {
		n.flags = append([]string{"--rules", rules}, n.flags...)
	}
	n.client = inspect.NewClient(filepath.Join(run, "agent.sock"))
	t.Cleanup(func() {
		n.kill(t)
		if found := races.In(n.output.String()); found != "" {
			t.Errorf("the agent of %s has a data race:\n%s", on.name, found)
		}
		if t.Failed() {
			t.Logf("output of the agent of %s:\n%s", on.name, n.output.Tail())
		}
	})
	return n
}

// program is the path of the program under test.
func program() string { return os.Getenv("KUBE_IPVS_BIN") }

// write puts manifests in place, each by rename, as a careful writer does.
func (n *proxy) write(t *testing.T, services ...service) {
	t.Helper()
	for _, s := range services {
		n.writeFile(t, s.name+".yaml", s.manifest())
	}
}

func (n *proxy) writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	path := filepath.Join(n.manifests, name)
	if err := os.WriteFile(path+".tmp", content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// start runs the agent and waits until everything wanted is in the kernel.
func (n *proxy) start(t *testing.T, extra ...string) agent.Status {
	t.Helper()
	n.launch(t, append([]string{program()}, append(n.flags, extra...)...))
	return n.settle(t, "be ready", func(s agent.Status) bool { return s.Ready && s.Failures == 0 })
}

// launch runs the agent by a command line, which may begin with a program that watches it.
func (n *proxy) launch(t *testing.T, args []string) {
	t.Helper()
	n.process = exec.Command(args[0], args[1:]...)
	n.process.Stdout, n.process.Stderr = n.output, n.output
	n.ended = make(chan error, 1)
	if err := n.do(n.process.Start); err != nil {
		t.Fatalf("start the agent: %v", err)
	}
	go func(p *exec.Cmd, ended chan<- error) { ended <- p.Wait() }(n.process, n.ended)
}

// settleTimeout bounds every wait for the agent; 1,000 Services under emulation take a while.
const settleTimeout = 3 * time.Minute

// settle waits until the status is as asked for.
func (n *proxy) settle(t *testing.T, what string, ok func(agent.Status) bool) agent.Status {
	t.Helper()
	var last agent.Status
	poll(t, "the agent to "+what, settleTimeout, func() error {
		select {
		case err := <-n.ended:
			n.process = nil
			t.Fatalf("the agent ended by itself: %v", err)
		default:
		}
		s, err := n.status()
		if err != nil {
			return err
		}
		if last = s; !ok(s) {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	return last
}

// quiet waits until a pass that is under way has ended: the agent tells its status between two.
func (n *proxy) quiet(t *testing.T) {
	t.Helper()
	n.settle(t, "have written everything", func(s agent.Status) bool { return s.Failures == 0 })
}

// edit changes manifests and waits until that is in the kernel.
func (n *proxy) edit(t *testing.T, change func()) agent.Status {
	t.Helper()
	before, err := n.status()
	if err != nil {
		t.Fatal(err)
	}
	change()
	return n.settle(t, "write the change", func(s agent.Status) bool { return s.Cycles > before.Cycles && s.Failures == 0 })
}

// mode is the one that runs.
func (n *proxy) mode(t *testing.T) string {
	t.Helper()
	s, err := n.status()
	n.must(t, err)
	return s.Mode
}

func (n *proxy) status() (agent.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.client.Status(ctx)
}

// pollPause is the least pause of poll.
const pollPause = 20 * time.Millisecond

// poll tries until there is no error. It rests for as long as a try took: at least half of the time belongs to what is waited for.
func poll(t *testing.T, what string, limit time.Duration, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		began := time.Now()
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s: %v", limit, what, err)
		}
		time.Sleep(max(pollPause, time.Since(began)))
	}
}

// kill ends the process as a crash does; nothing happens when none runs.
func (n *proxy) kill(t *testing.T) {
	t.Helper()
	if n.process == nil {
		return
	}
	_ = n.process.Process.Kill() // it may have ended by itself
	_ = n.wait(t)                // killed, as was asked
}

// stop ends the process as a supervisor does, and returns how it ended and how long that took.
func (n *proxy) stop(t *testing.T) (time.Duration, error) {
	t.Helper()
	start := time.Now()
	if err := n.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("stop the agent: %v", err)
	}
	err := n.wait(t)
	return time.Since(start), err
}

func (n *proxy) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-n.ended:
		n.process = nil
		return err
	case <-time.After(settleTimeout):
		t.Fatal("the agent does not end")
		return nil
	}
}

// verb runs the program with a verb and the agent's flags.
func (n *proxy) verb(name string, args ...string) (string, error) {
	return n.try(program(), append(append([]string{name}, n.flags...), args...)...)
}
