package packet

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// A soak has rounds of churn, faults and people who look, each of which ends in quiet. In the first half the agent is restarted and
// killed all the time; the one that lives through the second half is weighed after each round.
const (
	soakRounds  = 12
	soakRestart = 40 * time.Second // between two restarts
	soakTrouble = 5 * time.Second  // between two faults, and between two looks
)

// soak is a node that is given no rest.
type soak struct {
	*churn
	world   *world
	counted map[string]int
	idlers  []net.Conn // people who open the socket of the agent and say nothing
}

// troubles are faults of a node without an operator. None of it is about a Service that clients
// use.
func (s *soak) troubles() []struct {
	name string
	do   func(t *testing.T, victim int)
} {
	shell := func(format string) func(*testing.T, int) {
		return func(_ *testing.T, victim int) {
			_, _ = s.try("sh", "-c", fmt.Sprintf(format, victim+1)) // its object may not be there
		}
	}
	return []struct {
		name string
		do   func(t *testing.T, victim int)
	}{
		{"virtual server deleted", shell("ipvsadm -D -t 10.98.0.%d:80")},
		{"virtual server added", shell("ipvsadm -A -t 10.98.0.%d:9999 -s rr")},
		{"scheduler changed", shell("ipvsadm -E -t 10.98.0.%d:80 -s lc")},
		{"address deleted", shell("ip addr del 10.98.0.%d/32 dev kube-ipvs0")},
		{"IPv6 address deleted", shell("ip addr del fd00:98::%x/128 dev kube-ipvs0")},
		{"entry deleted", shell("ipset del KUBE-CLUSTER-IP 10.98.0.%d,tcp:80")},
		{"entry added", shell("ipset add KUBE-LOAD-BALANCER 10.97.0.%d,tcp:80")},
		{"manifest that cannot be read", s.unreadable},
		{"agent stopped for a second", s.pause},
		{"silent connections to the socket", s.idle},
	}
}

// unreadable puts garbage beside the manifests for a second.
func (s *soak) unreadable(t *testing.T, _ int) {
	t.Helper()
	s.writeFile(t, "garbage.yaml", []byte("kind: Service\nspec: ["))
	time.Sleep(time.Second)
	if err := os.Remove(filepath.Join(s.manifests, "garbage.yaml")); err != nil {
		t.Error(err)
	}
}

func (s *soak) pause(t *testing.T, _ int) {
	t.Helper()
	if err := errors.Join(s.process.Process.Signal(syscall.SIGSTOP), sleep(time.Second), s.process.Process.Signal(syscall.SIGCONT)); err != nil {
		t.Error(err)
	}
}

func sleep(d time.Duration) error { time.Sleep(d); return nil }

// idle opens the socket a few times, and closes what was opened before.
func (s *soak) idle(*testing.T, int) {
	s.dismiss()
	for range 5 {
		if c, err := net.Dial("unix", filepath.Join(s.runDir()[1], "agent.sock")); err == nil {
			s.idlers = append(s.idlers, c)
		}
	}
}

func (s *soak) dismiss() {
	for _, c := range s.idlers {
		_ = c.Close()
	}
	s.idlers = nil
}

// soakLooks are verbs that are run meanwhile; nil is a scrape.
var soakLooks = [][]string{
	nil, {"show", "services"}, {"show", "backends"}, {"show", "kernel", "servers"}, {"explain", "test/web"}, {"top", "--once", "--interval", "100ms"}, {"diff"},
}

// look runs one of them. Other tests check the output; while an agent starts, the verb may fail.
func (s *soak) look(t *testing.T, n int) {
	t.Helper()
	if args := soakLooks[n%len(soakLooks)]; args != nil {
		_, _ = s.try(program(), append(slices.Clone(args), s.flags...)...)
		return
	}
	s.page(t, "/metrics")
}

// round is one of churn, with everything else that happens, and the quiet after it.
func (s *soak) round(t *testing.T, length time.Duration, restarts bool) {
	t.Helper()
	troubles := s.troubles()
	end, restart, trouble := time.Now().Add(length), time.Now().Add(soakRestart), time.Now()
	for n := 0; time.Now().Before(end); n++ {
		s.edit(t)
		s.counted["edits"]++
		time.Sleep(time.Duration(s.random.Int64N(int64(200 * time.Millisecond))))
		if time.Since(trouble) > soakTrouble {
			what := troubles[s.random.IntN(len(troubles))]
			what.do(t, s.random.IntN(churned))
			s.look(t, n)
			s.counted[what.name]++
			trouble = time.Now()
		}
		if restarts && time.Now().After(restart) {
			if s.random.IntN(2) == 0 {
				s.kill(t)
				s.counted["kills"]++
			} else if _, err := s.stop(t); err != nil {
				t.Errorf("the agent ended with %v", err)
			} else {
				s.counted["restarts"]++
			}
			s.edit(t)
			s.start(t)
			restart = time.Now().Add(soakRestart)
		}
	}
	s.dismiss()
	// The audit finds the damage, and a slow machine pauses long between two audits.
	poll(t, "the kernel to be as planned", settleTimeout, func() error {
		if diff := cmp.Diff(s.planned(t), s.ours(t)); diff != "" {
			return fmt.Errorf("(-plan +kernel):\n%s", diff)
		}
		return nil
	})
}

// weight is what an agent takes of its node.
type weight struct {
	rss, heap         float64 // MiB
	goroutines, files int
	threads           int
	rows              int // number of our rows in the kernel: servers, destinations, entries, addresses
	conns             int // that IPVS and connection tracking keep, of all who use this kernel
}

func (s *soak) weigh(t *testing.T) (w weight) {
	t.Helper()
	pid := s.process.Process.Pid
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	s.must(t, err)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	s.must(t, err)
	page := s.page(t, "/metrics")
	metric := func(name string) float64 {
		_, rest, found := strings.Cut(page, "\n"+name+" ")
		value, _, _ := strings.Cut(rest, "\n")
		f, err := strconv.ParseFloat(value, 64)
		if !found || err != nil {
			t.Fatalf("metric %s: %q, %v", name, value, err)
		}
		return f
	}
	const mib = 1 << 20
	w = weight{files: len(files), goroutines: int(metric("go_goroutines")), rss: metric("process_resident_memory_bytes") / mib, heap: metric("go_gc_heap_live_bytes") / mib}
	for lines := bufio.NewScanner(strings.NewReader(string(status))); lines.Scan(); {
		if n, found := strings.CutPrefix(lines.Text(), "Threads:"); found {
			w.threads, err = strconv.Atoi(strings.TrimSpace(n))
			s.must(t, err)
		}
	}
	count := func(script string) int {
		n, err := strconv.Atoi(strings.TrimSpace(s.shell(t, script)))
		s.must(t, err)
		return n
	}
	w.rows = count("(ipvsadm -Sn; ipset save | grep ^add; ip -o addr show dev kube-ipvs0) | wc -l")
	w.conns = count("cat /proc/net/ip_vs_conn | wc -l") + count("conntrack -C")
	return w
}

// TestSoak is an hour, or as long as KUBE_IPVS_E2E_SOAK sets, of churn, traffic, faults and
// restarts. Clients of unchanged Services notice nothing. The kernel equals a fresh compile
// whenever it is quiet, and the agent does not grow.
func TestSoak(t *testing.T) {
	text := os.Getenv("KUBE_IPVS_E2E_SOAK")
	if text == "" {
		t.Skip("takes an hour: make stress WHAT=soak")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("KUBE_IPVS_E2E_SOAK: %v", err)
	}
	w := newWorld(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--drain", "2s", "--ipvs-sync-period", "2s")
	s := &soak{churn: &churn{proxy: n, random: rand.New(rand.NewPCG(seed, 0)), there: map[int]bool{}}, world: w, counted: map[string]int{}}
	web := w.web(t)
	web.lb = pair{"198.18.3.1", "2001:db8:3::1"}
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, web)
	n.start(t)
	runs, talkers := s.clients(t, web)

	table := newTable("round", "restarts", "RSS MiB", "live heap MiB", "goroutines", "descriptors", "threads", "rows in the kernel", "connections")
	var weights []weight
	for round := range soakRounds {
		restarts := round < soakRounds/2
		s.round(t, length/soakRounds, restarts)
		got := s.weigh(t)
		table.row(round+1, restarts, fmt.Sprintf("%.1f", got.rss), fmt.Sprintf("%.1f", got.heap), got.goroutines, got.files, got.threads, got.rows, got.conns)
		if !restarts {
			weights = append(weights, got)
		}
	}
	t.Logf("figure: what happened: %v\n%s", s.counted, table)
	for _, run := range runs {
		got, err := run.Stop()
		t.Logf("figure: of %d new connections %d failed, the slowest took %s; of %d held open %d live",
			got.Started, got.Failures(), got.Worst().Round(time.Millisecond), len(got.Long.Conns), got.Long.Alive)
		if err != nil || got.Failures() > 0 || got.Long.Cuts() > 0 {
			t.Errorf("%v\n%s", err, report(got))
		}
	}
	talkers.check(t)
	first, last := weights[0], weights[len(weights)-1]
	for _, grown := range []struct {
		what              string
		from, to, allowed float64
	}{
		{"RSS in MiB", first.rss, last.rss, 4 + first.rss/10},
		{"live heap in MiB", first.heap, last.heap, 2 + first.heap/10},
		{"goroutines", float64(first.goroutines), float64(last.goroutines), 5},
		{"descriptors", float64(first.files), float64(last.files), 3},
		{"threads", float64(first.threads), float64(last.threads), 5},
	} {
		if grown.to > grown.from+grown.allowed {
			t.Errorf("%s of one agent grew from %.1f to %.1f", grown.what, grown.from, grown.to)
		}
	}
}

// clients use a Service that never changes: new connections and some held open, by each family and
// path, and UDP.
func (s *soak) clients(t *testing.T, web service) (runs []*load.Run, talkers streams) {
	t.Helper()
	for _, c := range []struct {
		from *pod
		to   string
	}{{s.world.visitor, web.vip.v4}, {s.world.outside, web.lb.v6}, {s.world.outside, web.lb.v4}} {
		runs = append(runs, c.from.load(t, load.Profile{
			To: netip.MustParseAddrPort(hostPort(c.to, 80)), Sources: []netip.Addr{c.from.source(c.to)}, New: 5, Long: 6, Every: time.Second,
		}))
	}
	return runs, streams{s.world.visitor.stream(t, backend.UDP, web.vip.v4)}
}
