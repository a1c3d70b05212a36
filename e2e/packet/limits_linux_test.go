package packet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// limit is what a process may lack.
type limit struct {
	name  string
	shell string // takes it away; $RUN is the run directory, and exec "$@" ends it
	ends  bool   // the agent cannot run
	waits bool   // it runs and carries nothing new; otherwise it carries what it is given
	says  string // its output, if any
	finds string // the finding of kube-ipvs check: state and name; empty means nothing missing or failed
}

// lacks starts a program that lacks a capability.
func lacks(capability string) string {
	return fmt.Sprintf(`exec setpriv --bounding-set=-%s --inh-caps=-%[1]s -- "$@"`, capability)
}

var limits = []limit{
	{name: "nothing is lacking", shell: `exec "$@"`},
	{name: "CAP_NET_ADMIN", shell: lacks("net_admin"), ends: true, says: "remedy: run as root, or with CAP_NET_ADMIN and CAP_NET_RAW", finds: "failed"},
	{name: "CAP_NET_RAW", shell: lacks("net_raw"), waits: true, says: "take CAP_NET_RAW", finds: "missing sets in rules"},
	{name: "CAP_SYS_MODULE", shell: lacks("sys_module")},
	{name: "CAP_SYS_ADMIN", shell: lacks("sys_admin")},
	{name: "CAP_DAC_OVERRIDE", shell: lacks("dac_override")},
	{name: "CAP_SYS_RESOURCE", shell: lacks("sys_resource"), says: "setting the out-of-memory score failed, the score stays"},
	{name: "space in the run directory", shell: `mount -t tmpfs -o size=4k tmpfs $RUN; head -c 8192 /dev/zero >$RUN/fill || true; exec "$@"`, says: "no space left on device", finds: "warning run directory"},
	{name: "a writable run directory", shell: `mount -t tmpfs -o ro tmpfs $RUN; exec "$@"`, ends: true, says: "--run-dir", finds: "missing run directory"},
	{name: "a writable /proc/sys", shell: `mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys; exec "$@"`, waits: true, says: "net.ipv4.vs.conntrack", finds: "missing sysctls"},
	{name: "memory", shell: `export GOMEMLIMIT=16MiB; exec "$@"`},
	{name: "memory of a control group", shell: inGroup(`$(mktemp -d `+groups+`/kube-ipvs-limited-XXXX)`, "64M"), says: "the Go memory limit is set"},
}

// limitWatched is how long an agent is watched that lacks something. Retries begin after 0.1 s and double.
const limitWatched = 4 * time.Second

// TestLimits starts the agent without something that it is used to: it names that, and either ends or carries what it is given, and it
// never tries all the time.
func TestLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	t.Cleanup(func() { w.node.shell(t, "rmdir "+groups+"/kube-ipvs-limited-* || true") })
	table := newTable("lacking", "runs", "carries", "warnings", "processes in "+limitWatched.String(), "CPU meanwhile", "check", "it says")
	for i, tt := range limits {
		t.Run(tt.name, func(t *testing.T) {
			w.node.shell(t, "sysctl -qw net.ipv4.vs.conntrack=0 || true") // there is no such key before the first start
			n := newAgent(t, w.node, "--cluster-cidr", clusters)
			s := service{name: fmt.Sprintf("limited-%d", i), vip: pair{v4: fmt.Sprintf("10.96.2.%d", i+1)}, ports: webPorts()[:1], backends: endpoints(w.pod1)}
			n.write(t, s)
			n.launch(t, append(tt.under(n), n.flags...))
			calls, cpu := "-", time.Duration(0)
			if !tt.ends {
				tt.settle(t, w, n, s.vip.v4)
				calls, cpu = tt.watch(t, n)
				if _, err := n.stop(t); err != nil {
					t.Errorf("SIGTERM: %v", err)
				}
			} else if err := n.wait(t); err == nil {
				t.Error("it ended, and with success")
			}
			table.row(tt.name, !tt.ends, !tt.ends && !tt.waits, n.warnings(), calls, cpu, tt.checked(t, n), n.firstSaid(tt.says))
			if err := n.hasSaid(tt.says); err != nil {
				t.Error(err)
			}
		})
	}
	t.Logf("figure: what an agent says and does that lacks something\n%s", table)
}

// settle waits until the agent carries the address that is new, or reports that it cannot.
func (l limit) settle(t *testing.T, w *world, n *proxy, addr string) {
	t.Helper()
	poll(t, "answers, or a reason", settleTimeout, func() error {
		if l.waits {
			return n.hasSaid("apply failed")
		}
		if got := w.outside.askFor(silence, backend.TCP, addr, 80, 1); got.OK != 1 {
			return fmt.Errorf("%s", text(got))
		}
		return nil
	})
}

// watch counts what the agent does in a time without work, or without work that it can do.
func (l limit) watch(t *testing.T, n *proxy) (calls string, cpu time.Duration) {
	t.Helper()
	before, called, said := n.cpu(t), n.metric(t, ruleCalls), n.warnings()
	time.Sleep(limitWatched)
	processes, warnings := n.metric(t, ruleCalls)-called, n.warnings()-said
	if processes > 20 || warnings > 20 {
		t.Errorf("%.0f processes and %d warnings in %s", processes, warnings, limitWatched)
	}
	if fails := n.hasSaid("apply failed") == nil; fails != l.waits {
		t.Errorf("something fails: %t, want %t", fails, l.waits)
	}
	return fmt.Sprint(processes), n.cpu(t) - before
}

// under is the command line that runs the program without something, in a mount namespace of its own.
func (l limit) under(n *proxy) []string {
	return []string{"unshare", "-m", "sh", "-ec", "RUN=" + n.runDir()[1] + "\n" + l.shell, "sh", program()}
}

// checked is the first that kube-ipvs check finds wrong under the same limit.
func (l limit) checked(t *testing.T, n *proxy) string {
	t.Helper()
	args := append(l.under(n), "check")
	out, _ := n.try(args[0], append(args[1:], n.flags...)...) // the exit status is that of what is found
	for line := range strings.Lines(out) {
		line = strings.Join(strings.Fields(line), " ")
		switch bad := strings.HasPrefix(line, "missing ") || strings.HasPrefix(line, "failed "); {
		case l.finds != "" && strings.HasPrefix(line, l.finds+" "):
			return brief(line)
		case l.finds == "" && bad:
			t.Errorf("check finds what the agent does without: %s", line)
		}
	}
	if l.finds != "" {
		t.Errorf("check does not find %q:\n%s", l.finds, out)
	}
	return "fit"
}

// warnings are how many lines the agent has printed that a person should read.
func (n *proxy) warnings() int {
	count := 0
	for line := range strings.Lines(n.output.String()) {
		if !strings.Contains(line, "\tinfo\t") && strings.TrimSpace(line) != "" {
			count++
		}
	}
	return count
}

// hasSaid fails unless the agent has printed something.
func (n *proxy) hasSaid(what string) error {
	if !strings.Contains(n.output.String(), what) {
		return fmt.Errorf("not a word of %q:\n%s", what, n.output.Tail())
	}
	return nil
}

// firstSaid is the first line with a text.
func (n *proxy) firstSaid(what string) string {
	for line := range strings.Lines(n.output.String()) {
		if what != "" && strings.Contains(line, what) {
			return brief(line)
		}
	}
	return "-"
}

// brief is what fits into a table.
func brief(line string) string {
	fields := strings.Split(strings.TrimSpace(line), "\t")
	line = strings.Join(fields[min(2, len(fields)-1):], " ")
	return line[:min(len(line), 150)]
}

// TestNoFileDescriptors takes away all file descriptors of an agent that runs, for a while: it logs
// so, goes on carrying, and catches up when there are some again. Its knowledge of the node for
// cleanup stays.
func TestNoFileDescriptors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.web(t)
	w.pod3.serve(t, 8080)
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--ipvs-sync-period", "1s")
	n.write(t, web)
	n.start(t)
	journal := filepath.Join(n.runDir()[1], "sysctls.json")
	before, err := os.ReadFile(journal)
	n.must(t, err)
	pid, cpu, said := n.process.Process.Pid, n.cpu(t), n.warnings()
	var had unix.Rlimit
	n.must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &had))
	n.must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: had.Max}, nil))
	web.backends = append(web.backends, endpoints(w.pod3)...)
	n.write(t, web)
	time.Sleep(limitWatched)
	t.Logf("figure: %s without a file descriptor: %s of CPU, %d lines, the first %s", limitWatched, n.cpu(t)-cpu, n.warnings()-said, n.firstSaid("too many open files"))
	if lines := n.warnings() - said; lines == 0 || lines > 60 {
		t.Errorf("%d lines in %s:\n%s", lines, limitWatched, n.output.Tail())
	}
	put(t, []any{"Service", "client"}, ask("web", w.outside, web.vip, 80, by(w.pod1, w.pod2, w.remote1).any(), backend.TCP))
	n.must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &had, nil))
	n.settle(t, "write what came meanwhile", func(s agent.Status) bool { return s.Failures == 0 && s.Cycles > 1 })
	poll(t, "the new endpoint to answer", settleTimeout, func() error {
		got := w.outside.ask(backend.TCP, web.vip.v4, 80, 4)
		if got.Backends["pod-3"] == 0 {
			return fmt.Errorf("%s", text(got))
		}
		return nil
	})
	after, err := os.ReadFile(journal)
	if err != nil || string(after) != string(before) {
		t.Errorf("journal of sysctls, before and after (%v):\n%s\n%s", err, before, after)
	}
}
