package packet

import (
	_ "embed"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// burdened are clients of a Service that ask all the time and hold connections: one not masqueraded, one masqueraded, and the host.
func (w *world) burdened(t *testing.T, s service, profile load.Profile) []*load.Run {
	t.Helper()
	var runs []*load.Run
	for i, from := range []*pod{w.visitor, w.outside, w.host()} {
		to := s.vip.of(families[i%2])
		profile.To, profile.Sources = netip.MustParseAddrPort(hostPort(to, 80)), nil
		if from.name != "host" {
			profile.Sources = []netip.Addr{from.source(to)}
		}
		runs = append(runs, from.load(t, profile))
	}
	for _, run := range runs {
		until(t, run, "connections held open", func(r load.Report) bool { return r.Long.Alive == profile.Long })
	}
	return runs
}

// unburden ends them and fails for each request that got no answer and each connection that was cut.
func unburden(t *testing.T, runs []*load.Run) {
	t.Helper()
	for _, run := range runs {
		got, err := run.Stop()
		t.Logf("figure: of %d new connections %d failed, the slowest took %s; of %d held open %d live",
			got.Started, got.Failures(), got.Worst().Round(time.Millisecond), len(got.Long.Conns), got.Long.Alive)
		if err != nil || got.Failures() > 0 || got.Long.Cuts() > 0 {
			t.Errorf("%v\n%s", err, report(got))
		}
	}
}

// steady is what clients do who want to notice everything.
var steady = load.Profile{New: 50, Long: 5, Every: time.Second}

// TestIPTablesRestartsFailNoRequest crashes, stops and starts the agent while requests run, and edits manifests while it is down.
func TestIPTablesRestartsFailNoRequest(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := iptablesWorld(t)
		web := w.web(t)
		w.pod3.serve(t, 8080)
		n := newAgent(t, w.node, inIPTables(kind, "--cluster-cidr", clusters)...)
		n.writeFile(t, "nodes.yaml", w.nodes())
		n.write(t, rich(w)...)
		n.write(t, web)
		n.start(t)
		before := n.lookAtRules(t, kind)
		same(t, "kernel beside the plan", n.planned(t), ours(before))
		runs := w.burdened(t, web, steady)
		ss := streams{w.pod3.stream(t, backend.HTTP, web.vip.v4), w.visitor.stream(t, backend.UDP, web.vip.v4)}
		end := map[string]func(){
			"a crash": func() { n.kill(t) },
			"SIGTERM": func() {
				took, err := n.stop(t)
				t.Logf("figure: SIGTERM: ended after %s", took.Round(time.Millisecond))
				if err != nil {
					t.Errorf("SIGTERM: %v, want exit status 0", err)
				}
			},
		}
		for _, how := range []string{"a crash", "SIGTERM"} {
			ss.more(t, 20)
			end[how]()
			ss.more(t, 20)
			same(t, "kernel after "+how, before, n.lookAtRules(t, kind))
			if s := n.start(t); s.Cycles != 0 {
				t.Errorf("start after %s wrote %v, want nothing", how, s.Written)
			}
		}
		n.kill(t)
		web.backends = append(web.backends, endpoints(w.pod3)...)
		n.write(t, web)
		s := n.start(t)
		// In each family and for each protocol there is a chain more, and the one that spreads has another rule.
		wantRows(t, "an endpoint while the agent was down", s, map[string]uint64{"chains": 2 * 3 * 2})
		ss.more(t, 20)
		put(t, []any{"Service", "client"}, ask("web", w.outside, web.vip, 80, by(w.pod1, w.pod2, w.pod3, w.remote1).any()))
		ss.check(t)
		unburden(t, runs)
	})
}

func TestIPTablesKilledAtRandomMoments(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) { iptablesWorld(t).killedAtRandom(t, kind) })
}

// TestIPTablesRollingUpdate replaces all backends of a busy Service, one after the other. No new connection fails, also when those of
// before are gone that hold none, and what was held open goes on at the backend where it is.
func TestIPTablesRollingUpdate(t *testing.T) {
	const replicas = 8
	eachKind(t, func(t *testing.T, kind string) {
		w := iptablesWorld(t)
		old, fresh := w.workers(t, 0, replicas), w.workers(t, replicas, replicas)
		s := service{name: "rolling", vip: pair{v4: rollService}, ports: webPorts()[:1]}
		for _, k := range old {
			s.backends = append(s.backends, k.endpoint)
		}
		n := newAgent(t, w.node, inIPTables(kind, "--cluster-cidr", clusters)...)
		n.write(t, s)
		n.start(t)
		profile := load.Profile{To: netip.MustParseAddrPort(rollService + ":80"), Sources: w.pod3.clients(t, 30, 4), Every: time.Second, Long: 20}
		held := w.pod3.load(t, profile)
		until(t, held, "connections held open", func(r load.Report) bool { return r.Long.Alive == profile.Long })
		profile.Long, profile.New, profile.Reset = 0, 200, true
		busy := w.pod3.load(t, profile)
		for i := range old {
			more(t, busy, 50)
			s.backends[0].terminating = true
			s.backends = append(s.backends, fresh[i].endpoint)
			n.edit(t, func() { n.write(t, s) })
			s.backends = s.backends[1:]
			n.write(t, s)
			n.quiet(t)
		}
		n.leadsTo(t, kind, fresh)
		holds := map[string]int{}
		for _, c := range held.Report().Long.Conns {
			holds[c.Backend]++
		}
		more(t, busy, 50) // connections to one of the old backends have arrived
		for _, k := range old {
			if holds[k.name] == 0 {
				k.end()
			}
		}
		more(t, busy, 200)
		t.Logf("figure: connections held open by backend: %v", holds)
		unburden(t, []*load.Run{busy, held})
	})
}

// leadsTo requires that the rules lead to exactly these workers.
func (n *proxy) leadsTo(t *testing.T, kind string, workers []*worker) {
	t.Helper()
	want := map[string]bool{}
	for _, k := range workers {
		want["-p tcp "+k.addr+":8080"] = true
	}
	got := n.destinations(t, kind)
	for _, to := range got {
		if !want[to] {
			t.Errorf("a rule leads to %s", to)
		}
	}
	if len(got) != len(want) {
		t.Errorf("rules lead to %v, want %d", got, len(want))
	}
}

// reloads are the actions of a firewall that loads its rules again. If it removes every rule that
// matches connection state, the kernel stops tracking until there is one again. Packets of open
// connections then leave untranslated, so such a connection may be cut by any implementation. A
// chain that is to be deleted may be in use again by then. Of mangle, where there is nothing but a
// sign for others, only the audit notices that it was flushed: it comes first here, and is found
// lost with the rest.
var reloads = []struct {
	name, script string
	tracked      bool // connections are, all the time
}{
	{name: "nat flushed", script: `for ip in iptables ip6tables; do $ip-$1 -t nat -F; done`, tracked: true},
	{name: "nat of IPv4 flushed", script: `iptables-$1 -t nat -F`, tracked: true},
	{name: "everything flushed and deleted", script: `for ip in iptables ip6tables; do for table in mangle filter nat; do $ip-$1 -t $table -F; $ip-$1 -t $table -X || true; done; done`},
	{name: "everything restored from nothing", script: `for ip in iptables ip6tables; do for table in mangle filter nat; do printf '*%s\nCOMMIT\n' $table; done | $ip-$1-restore; done`},
}

// reloaded is the limit for the repair after a flush.
const reloaded = 30 * time.Second

// TestIPTablesFlushedUnderLoad: another program deletes all rules. They are back by themselves,
// without an audit.
func TestIPTablesFlushedUnderLoad(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := iptablesWorld(t)
		web := w.web(t)
		n := newAgent(t, w.node, inIPTables(kind, "--cluster-cidr", clusters)...)
		n.writeFile(t, "nodes.yaml", w.nodes())
		n.write(t, rich(w)...)
		n.write(t, web)
		n.start(t)
		before := n.lookAtRules(t, kind)
		// For two minutes the kernel keeps the entry of a connection that began without rules, and the next one from its port would match it.
		profile := steady
		profile.Timeout, profile.Ports = time.Second, load.Ports{First: 10000, Last: 19999}
		runs := w.burdened(t, web, profile)
		table := newTable("what", "answers again after", "all is as before after", "failed meanwhile", "cut")
		for _, tt := range reloads {
			failed, cut := count(runs, load.Report.Failures), count(runs, cuts)
			more(t, runs[0], 20)
			noticed := strings.Count(n.output.String(), "another program flushed rules")
			n.run(t, "sh", "-ec", tt.script, "sh", kind)
			start := time.Now()
			talkers := []*talker{w.pod3.talk(t, hostPort(web.vip.v4, 80), 20), w.outside.talk(t, hostPort(web.vip.v6, 80), 20)}
			poll(t, "answers after "+tt.name, reloaded, func() error {
				for _, family := range families {
					if got := w.outside.askFor(silence/4, backend.TCP, web.vip.of(family), 80, 1); got.OK != 1 {
						return fmt.Errorf("IPv%d: %s", family, text(got))
					}
				}
				return nil
			})
			answered := time.Since(start)
			poll(t, "rules to be as before", reloaded, func() error {
				if diff := cmp.Diff(before, n.lookAtRules(t, kind)); diff != "" {
					return fmt.Errorf("(-want +got):\n%s", diff)
				}
				return nil
			})
			took := time.Since(start)
			if strings.Count(n.output.String(), "another program flushed rules") == noticed {
				t.Errorf("%s: the agent has not said that it noticed", tt.name)
			}
			answeredAll(t, talkers)
			more(t, runs[0], int(profile.New)) // a second, in which each connection that is open is used
			failed, cut = count(runs, load.Report.Failures)-failed, count(runs, cuts)-cut
			table.row(tt.name, answered.Round(10*time.Millisecond), took.Round(10*time.Millisecond), failed, cut)
			if tt.tracked && cut > 0 {
				t.Errorf("%s: %d connections that were open are cut", tt.name, cut)
			}
		}
		t.Logf("figure: rules flushed, with %d new connections a second\n%s", 3*int(profile.New), table)
		if s, err := n.status(); err != nil || s.Audits != 0 {
			t.Errorf("%d audits, %v: want none", s.Audits, err)
		}
		profile.Long, profile.Timeout, profile.Ports = 0, patience, load.Ports{First: 20000, Last: 29999}
		after := w.burdened(t, web, profile)
		more(t, after[0], 50)
		unburden(t, after)
	})
}

// answeredAll waits until each talker was answered, and ends them. A talker never pauses and may
// have begun while there were no rules.
func answeredAll(t *testing.T, talkers []*talker) {
	t.Helper()
	for _, k := range talkers {
		poll(t, k.name+" to be answered", reloaded, func() error {
			if sent, answered := k.count(); answered == 0 {
				return fmt.Errorf("%d datagrams, none answered", sent)
			}
			return nil
		})
		k.end()
	}
}

// count sums up a figure of several runs.
func count(runs []*load.Run, figure func(load.Report) int) int {
	n := 0
	for _, run := range runs {
		n += figure(run.Report())
	}
	return n
}

func cuts(r load.Report) int { return r.Long.Cuts() }

// kubeProxy is what a kube-proxy in iptables mode has in a kernel: one Service that is carried, test/web, and what it had no time to
// take away. Each family is restored alone.
//
//go:embed testdata/kube-proxy.rules
var kubeProxy string

// TestIPTablesTakesOverFromKubeProxy: the rules of a kube-proxy become the agent's under load,
// without a failed request, and rules that are no longer needed are deleted.
func TestIPTablesTakesOverFromKubeProxy(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := iptablesWorld(t)
		web := w.web(t)
		web.ports, web.nodePort = webPorts()[:1], 30080
		four, six, _ := strings.Cut(kubeProxy, "# IPv6\n")
		for program, rules := range map[string]string{"iptables-": four, "ip6tables-": six} {
			if _, err := w.node.feed(rules, program+kind+"-restore", "--noflush"); err != nil {
				t.Fatal(err)
			}
		}
		before := w.node.lookAtRules(t, kind)
		runs := w.burdened(t, web, steady)
		for _, run := range runs {
			more(t, run, 50)
		}
		n := newAgent(t, w.node, inIPTables(kind, "--cluster-cidr", clusters)...)
		n.writeFile(t, "nodes.yaml", w.nodes())
		n.write(t, web)
		start := time.Now()
		s := n.start(t)
		t.Logf("figure: ready %s after the start over rules of kube-proxy, rows written %v", time.Since(start).Round(10*time.Millisecond), s.Written)
		for _, run := range runs {
			more(t, run, 50)
		}
		after := n.lookAtRules(t, kind)
		for _, kind := range []string{"rules4", "rules6"} {
			if before.count(kind, "STALE") == 0 || before.count(kind, "nat :KUBE-SVC-AGVIK4B6WSY47IN3") != 1 {
				t.Fatalf("the rules of kube-proxy are not what the test is about:\n%s", strings.Join(before[kind], "\n"))
			}
			if n := after.count(kind, "STALE"); n > 0 {
				t.Errorf("%d rules and chains that no Service wants:\n%s", n, strings.Join(after[kind], "\n"))
			}
			if after.count(kind, ":KUBE-FIREWALL") != before.count(kind, ":KUBE-FIREWALL") {
				t.Errorf("kubelet's chain is gone:\n%s", strings.Join(after[kind], "\n"))
			}
		}
		planned := n.planned(t)
		same(t, "kernel beside the plan", planned, ours(after).without("KUBE-FIREWALL"))
		put(t, []any{"Service", "client"}, ask("web", w.outside, fabAddr, web.nodePort, by(w.pod1, w.pod2, w.remote1).any(), backend.TCP))
		unburden(t, runs)
	})
}

// without leaves out the lines with a text.
func (v view) without(part string) view {
	out := view{}
	for kind, lines := range v {
		for _, line := range lines {
			if !strings.Contains(line, part) {
				out[kind] = append(out[kind], line)
			}
		}
	}
	return out
}
