package traffic

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/races"
	"github.com/kube-ipvs/kube-ipvs/e2e/transcript"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// settleTimeout bounds every wait for the agent; 1,000 Services under emulation take a while.
const settleTimeout = 3 * time.Minute

// proxy is a kube-ipvs on the node: its command line, and its process while one runs.
type proxy struct {
	*world
	program string
	flags   []string
	client  *inspect.Client

	process *exec.Cmd
	output  *transcript.Transcript
	ended   chan error
}

// newAgent gives the node an agent that follows the API server by a kubeconfig, and is not running yet.
func newAgent(t *testing.T, w *world, kubeconfig string, flags ...string) *proxy {
	t.Helper()
	run := t.TempDir()
	return newProgram(t, w, os.Getenv("KUBE_IPVS_BIN"), run, append([]string{
		"--run-dir", run, "--kubeconfig", kubeconfig, "--hostname-override", thisNode, "--cluster-cidr", clusterCIDR,
		"--ipvs-sync-period", "1h", "--iptables-backend", "nft",
	}, flags...)...)
}

// newProgram gives the node a program that is kube-ipvs, by any name, with exactly these flags; run is where it has its socket.
func newProgram(t *testing.T, w *world, program, run string, flags ...string) *proxy {
	t.Helper()
	p := &proxy{world: w, program: program, flags: flags, output: &transcript.Transcript{}}
	p.client = inspect.NewClient(filepath.Join(run, "agent.sock"))
	t.Cleanup(func() {
		p.kill(t)
		if found := races.In(p.output.String()); found != "" {
			t.Errorf("the agent has a data race:\n%s", found)
		}
		if t.Failed() {
			t.Logf("output of the agent:\n%s", p.output.Tail())
		}
	})
	return p
}

// launch runs the agent and does not wait.
func (p *proxy) launch(t *testing.T, env ...string) {
	t.Helper()
	p.process = exec.Command(p.program, p.flags...)
	p.process.Stdout, p.process.Stderr = p.output, p.output
	p.process.Env = append(os.Environ(), env...)
	p.ended = make(chan error, 1)
	if err := p.node.do(p.process.Start); err != nil {
		t.Fatalf("start the agent: %v", err)
	}
	go func(c *exec.Cmd, ended chan<- error) { ended <- c.Wait() }(p.process, p.ended)
}

// start runs the agent and waits until everything wanted is in the kernel.
func (p *proxy) start(t *testing.T, env ...string) agent.Status {
	t.Helper()
	p.launch(t, env...)
	return p.settle(t, "be ready", settleTimeout, func(s agent.Status) bool { return s.Ready && s.Failures == 0 })
}

// settle waits until the status is as asked for.
func (p *proxy) settle(t *testing.T, what string, limit time.Duration, ok func(agent.Status) bool) agent.Status {
	t.Helper()
	var last agent.Status
	poll(t, "the agent to "+what, limit, func() error {
		select {
		case err := <-p.ended:
			p.process = nil
			t.Fatalf("the agent ended by itself: %v", err)
		default:
		}
		s, err := p.try()
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

func (p *proxy) try() (agent.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return p.client.Status(ctx)
}

func (p *proxy) status(t *testing.T) agent.Status {
	t.Helper()
	s, err := p.try()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// failing is why health checks fail, by the answer of the agent's socket.
func (p *proxy) failing(t *testing.T) string {
	t.Helper()
	list, err := p.client.Health(t.Context(), inspect.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, row := range list.Items {
		if !row.OK {
			reasons = append(reasons, row.Check+": "+row.Reason)
		}
	}
	t.Logf("failing: %v", reasons)
	return strings.Join(reasons, "\n")
}

// kill ends the process as a crash does; nothing happens when none runs.
func (p *proxy) kill(t *testing.T) {
	t.Helper()
	if p.process == nil {
		return
	}
	_ = p.process.Process.Kill() // it may have ended by itself
	select {
	case err := <-p.ended:
		t.Logf("the agent was killed: %v", err)
		p.process = nil
	case <-time.After(settleTimeout):
		t.Fatal("the agent does not end")
	}
}

// terminate ends the agent as an orchestrator does, and fails the test unless it ends in order by itself.
func (p *proxy) terminate(t *testing.T) {
	t.Helper()
	must(t, p.process.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.ended:
		p.process = nil
		if err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	case <-time.After(settleTimeout):
		t.Error("the agent does not end")
	}
}

// answer is what an HTTP path of the agent gave.
type answer struct {
	code int
	body string
}

// Listeners of the agent, as kube-proxy has them.
const (
	healthPort  = 10256
	metricsPort = 10249
)

// get asks one path on the node's loopback.
func (p *proxy) get(port int, path string) (answer, error) {
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: p.dial}}
	response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(body)}, err
}

func (p *proxy) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	var dialer net.Dialer
	err = p.node.do(func() error {
		conn, err = dialer.DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// answers waits until a path of the health port has a status, and returns the body.
func (p *proxy) answers(t *testing.T, path string, code int, limit time.Duration) string {
	t.Helper()
	var last answer
	poll(t, fmt.Sprintf("%s to be %d", path, code), limit, func() (err error) {
		if last, err = p.get(healthPort, path); err == nil && last.code != code {
			err = fmt.Errorf("it is %d: %s", last.code, last.body)
		}
		return err
	})
	return last.body
}
