package traffic

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

const equal = "equal: the kernel has all desired rows\n"

// TestDiffWithoutAnAgent: `kube-ipvs diff --kubeconfig` compares the kernel with the objects of the API server, while no agent runs; and
// it reports the rows that it cannot know.
func TestDiffWithoutAnAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	web := a.create(t, service("web"), backends[0], backends[2])
	p := newAgent(t, w, a.kubeconfigFor(t, cluster.Admin))
	p.start(t)
	p.wantsDiff(t, "beside the agent", 0, equal)
	p.kill(t)
	before := w.kernel(t)
	p.wantsDiff(t, "after the agent", 0, equal)

	w.node.shell(t, "ipvsadm -e -t "+vip(web).String()+" -r "+address(backends[0])+" -m -w 7")
	p.wantsDiff(t, "after a weight was changed by hand", 1,
		"@@ servers @@\n--a -t "+vip(web).String()+" -r "+address(backends[0])+" -m -w 7\n+-a -t "+vip(web).String()+" -r "+address(backends[0])+" -m -w 1\n")
	w.node.shell(t, "ipvsadm -e -t "+vip(web).String()+" -r "+address(backends[0])+" -m -w 1")

	later := a.create(t, service("later"), backends[1])
	out, code := p.diff(t)
	if want := "+-A -t " + vip(later).String() + " -s rr\n"; code != 1 || !strings.Contains(out, want) {
		t.Errorf("a Service the kernel does not know: status %d, want 1 and %q:\n%s", code, want, out)
	}
	same(t, "kernel after all that was asked", before, w.kernel(t))

	p.flags = append(p.flags, "--master", "https://10.0.2.99:6443") // no server is there
	p.wantsDiff(t, "without an API server", 2, "")
}

// diff runs the verb with the flags of the agent.
func (p *proxy) diff(t *testing.T) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, append([]string{"diff"}, p.flags...)...)
	var said []byte
	err := p.node.do(func() (err error) { said, err = cmd.Output(); return err })
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Logf("diff says: %s", exit.Stderr)
		return string(said), exit.ExitCode()
	}
	must(t, err)
	return string(said), 0
}

func (p *proxy) wantsDiff(t *testing.T, when string, wantCode int, want string) {
	t.Helper()
	got, code := p.diff(t)
	if code != wantCode {
		t.Errorf("%s: status %d, want %d", when, code, wantCode)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}
