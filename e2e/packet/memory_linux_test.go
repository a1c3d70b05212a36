package packet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// groups is where control groups of version 2 are.
const groups = "/sys/fs/cgroup"

// inGroup is the script that starts a program in a control group that is there, with a limit of memory.
func inGroup(dir, most string) string {
	return fmt.Sprintf(`echo +memory >%s/cgroup.subtree_control; dir=%s; echo %s >$dir/memory.max; echo $$ >$dir/cgroup.procs; exec "$@"`, groups, dir, most)
}

// memoryGroup is a control group whose memory can be limited.
type memoryGroup struct{ dir string }

func newMemoryGroup(t *testing.T) memoryGroup {
	t.Helper()
	dir := filepath.Join(groups, fmt.Sprintf("kube-ipvs-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil { // it is empty once the agent has ended
			t.Error(err)
		}
	})
	return memoryGroup{dir}
}

// limit sets what the group may use. The kernel kills at once who has more.
func (g memoryGroup) limit(t *testing.T, most string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, "memory.max"), []byte(most), 0o644); err != nil {
		t.Fatal(err)
	}
}

// number is a figure of the group (Documentation/admin-guide/cgroup-v2.rst): that of a whole file, or of a line "name value".
func (g memoryGroup) number(t *testing.T, file, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); ok && err == nil {
			return n
		}
	}
	t.Fatalf("%s has no number %q:\n%s", file, name, text)
	return 0
}

// supervisorPause is between the end of an agent and the start of the next.
const supervisorPause = time.Second

// supervise starts the agent for a while whenever it has ended, and returns how often that was. It leaves none that runs.
func (n *proxy) supervise(t *testing.T, within time.Duration, args []string) (starts int) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(supervisorPause) {
		n.launch(t, args)
		starts++
		select {
		case err := <-n.ended:
			n.process = nil
			if err == nil {
				t.Error("the agent ended, and with success")
			}
		case <-time.After(time.Until(end)):
			n.kill(t)
		}
	}
	return starts
}

// TestKilledForMemory gives the agent's control group less memory than it needs: the kernel kills it, and each one that is started
// after it. The kernel's rows stay and go on carrying; with memory enough the next agent catches up.
func TestKilledForMemory(t *testing.T) {
	t.Parallel()
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil && strings.Contains(string(text), "User Mode Linux") {
		t.Skip("User-mode Linux kills no process at the memory limit of its control group: the stage contracts of make test runs it")
	}
	w := newWorld(t)
	web := w.web(t)
	w.pod3.serve(t, 8080)
	g := newMemoryGroup(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	args := append([]string{"sh", "-ec", inGroup(g.dir, "$(cat "+g.dir+"/memory.max)"), "sh", program()}, n.flags...)
	w.node.shell(t, "echo +memory >"+groups+"/cgroup.subtree_control")
	n.write(t, web)
	n.launch(t, args)
	n.settle(t, "be ready", func(s agent.Status) bool { return s.Ready && s.Failures == 0 })
	before, used := w.node.look(t, "nft"), g.number(t, "memory.current", "")
	ss := streams{w.pod3.stream(t, backend.TCP, web.vip.v6), w.outside.stream(t, backend.TCP, web.vip.v4), w.visitor.stream(t, backend.UDP, web.vip.v4)}
	ss.more(t, 20)

	g.limit(t, strconv.FormatInt(used/3, 10))
	if err := n.wait(t); err == nil {
		t.Error("it ended, and with success")
	}
	fresh := service{name: "new", vip: pair{v4: "10.96.0.21"}, ports: webPorts()[:1], backends: endpoints(w.pod3)}
	n.write(t, fresh)
	cpu, killed := g.number(t, "cpu.stat", "usage_usec "), g.number(t, "memory.events", "oom_kill ")
	starts := n.supervise(t, limitWatched, args)
	cpu, killed = g.number(t, "cpu.stat", "usage_usec ")-cpu, g.number(t, "memory.events", "oom_kill ")-killed
	if killed < int64(starts)-1 || starts < 2 {
		t.Errorf("%d were killed for memory of %d", killed, starts)
	}
	same(t, "kernel after agents that were killed for memory", before, w.node.look(t, "nft"))
	ss.more(t, 20)

	g.limit(t, "64M")
	start := time.Now()
	n.launch(t, args)
	n.settle(t, "catch up", func(s agent.Status) bool { return s.Ready && s.Failures == 0 })
	poll(t, "the new Service to answer", settleTimeout, func() error {
		if got := w.outside.ask(backend.TCP, fresh.vip.v4, 80, 1); got.Backends["pod-3"] != 1 {
			return errors.New(text(got))
		}
		return nil
	})
	t.Logf("figure: %d KiB in use; with %d KiB %d of %d agents killed in %s, %s of CPU; with 64 MiB in step after %s", used>>10, used/3>>10, killed, starts,
		limitWatched, time.Duration(cpu)*time.Microsecond, time.Since(start).Round(time.Millisecond))
	if err := n.hasSaid("the Go memory limit is set"); err != nil {
		t.Error(err)
	}
	ss.check(t)
}
