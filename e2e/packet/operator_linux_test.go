package packet

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// looks are what people and programs do to see what an agent carries.
var looks = []struct {
	name string
	args []string // arguments of the program; nil is a scrape of the metrics
}{
	{"nothing", []string{"version"}},
	{"show services", []string{"show", "services", "-o", "json"}},
	{"show frontends", []string{"show", "frontends"}},
	{"show backends", []string{"show", "backends"}},
	{"show pending", []string{"show", "pending"}},
	{"show kernel servers", []string{"show", "kernel", "servers"}},
	{"explain", []string{"explain", "test/svc-0007"}},
	{"top --once", []string{"top", "--once"}},
	{"a scrape", nil},
	{"diff", []string{"diff"}},
}

// TestQueriesLeaveTheLoopFree carries many Services and runs every query, while a client sends
// small queries to the loop all the time. It prints the latency of these alone and during each
// query, with the cost of the query.
func TestQueriesLeaveTheLoopFree(t *testing.T) {
	services := servicesOr(t, 500)
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--drain=0s")
	var all []object
	for i := range services {
		all = append(all, numbered(i).items()...)
	}
	n.writeFile(t, "all.yaml", list(all...))
	n.start(t)
	table := newTable("look", "took", "its CPU", "the agent's CPU", "bytes", "the loop answers: median", "p99", "slowest")
	for _, l := range looks {
		var out string
		var cost, agentCost, took time.Duration
		delays := n.while(t, func() {
			begun, before := time.Now(), n.cpu(t)
			if l.args == nil {
				out = n.page(t, "/metrics")
			} else {
				out, cost = n.looked(t, l.args...)
			}
			took, agentCost = time.Since(begun), n.cpu(t)-before
		})
		ms := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
		table.row(l.name, ms(took), ms(cost), ms(agentCost), len(out), ms(quantile(delays, 0.5)), ms(quantile(delays, 0.99)), ms(delays[len(delays)-1]))
	}
	t.Logf("%d Services of %d endpoints\n%s", services, manyEndpoints, table)
}

// while asks the loop for its state all the time until f is done, and a second at least. It returns how long the answers took, sorted.
func (n *proxy) while(t *testing.T, f func()) []time.Duration {
	t.Helper()
	done := make(chan struct{})
	var delays []time.Duration
	end := time.Now().Add(time.Second)
	go func() {
		defer close(done)
		f()
	}()
	for running := true; running || time.Now().Before(end); {
		select {
		case <-done:
			running = false
		default:
		}
		begun := time.Now()
		if _, err := n.status(); err != nil {
			t.Fatal(err)
		}
		delays = append(delays, time.Since(begun))
		time.Sleep(10 * time.Millisecond)
	}
	slices.Sort(delays)
	return delays
}

// looked runs a verb, of which a difference is no failure, and returns what it prints and the processor time it took.
func (n *proxy) looked(t *testing.T, args ...string) (string, time.Duration) {
	t.Helper()
	cmd := exec.Command(program(), append(args, n.flags...)...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := n.do(cmd.Run)
	if err != nil {
		t.Errorf("kube-ipvs %s: %v: %s", strings.Join(args, " "), err, &stderr)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return stdout.String(), time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// cpu is the processor time of the agent so far.
func (n *proxy) cpu(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.process.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may have blanks; proc(5)
	fields := strings.Fields(rest)
	user, errUser := strconv.Atoi(fields[11])
	system, errSystem := strconv.Atoi(fields[12])
	if errUser != nil || errSystem != nil {
		t.Fatalf("times in %q", rest)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on all of Linux
	return time.Duration(user+system) * tick
}

// quantile is one of sorted times.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// TestPlanPrintsWhatIpvsadmDoes: the pipe in the help of plan, with the real tools, prints nothing where diff prints equal, and each
// server that only one side has.
func TestPlanPrintsWhatIpvsadmDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, append(w.shop(t), service{
		name: "dual", vip: pair{"10.96.0.30", "fd00:96::30"}, ports: webPorts(), nodePort: 30090, affinity: 600, backends: endpoints(w.pod1, w.remote1),
	})...)
	n.start(t)
	n.must(t, n.differs("equal: the kernel has all desired rows"))
	compare := func() (string, error) {
		return n.try("bash", append([]string{"-c", `set -o pipefail; "$0" plan "$@" --show servers --node-address $(hostname -I | xargs | tr ' ' ,) 2>/dev/null |
			sort | diff - <(ipvsadm -Sn | sort)`, program()}, n.flags...)...)
	}
	if out, err := compare(); err != nil || out != "" {
		t.Errorf("error %v, differences\n%s", err, out)
	}
	w.node.shell(t, "ipvsadm -A -t 10.96.0.30:99 -s rr")
	if out, err := compare(); err == nil || out != "0a1\n> -A -t 10.96.0.30:99 -s rr\n" && !strings.HasSuffix(out, "\n> -A -t 10.96.0.30:99 -s rr\n") {
		t.Errorf("error %v, one server of the kernel is to differ\n%s", err, out)
	}
}
