package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/linediff"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
	"github.com/kube-ipvs/kube-ipvs/internal/top"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// firstScreen is how many lines a small terminal has.
const firstScreen = 24

// namesFaults fails unless the first screen has each fault in one line with its node.
func namesFaults(t *testing.T, screen string, faults map[string]string) {
	t.Helper()
	lines := strings.Split(screen, "\n")
	first := lines[:min(len(lines), firstScreen)]
	for node, what := range faults {
		found := false
		for _, l := range first {
			found = found || strings.HasPrefix(l, node+": ") && strings.Contains(l, what)
		}
		if !found {
			t.Errorf("no line of the first %d says %s: %s\n%s", firstScreen, node, what, screen)
		}
	}
}

// TestStatusNamesFaultsOfSingleNodes: each of five faults is named with its node.
func TestStatusNamesFaultsOfSingleNodes(t *testing.T) {
	r := fiveFaults(t).run(t, &cluster.Status{Now: now})
	screen := text(t, r, false)
	namesFaults(t, screen, map[string]string{
		"worker-2": "the kernel lacks 2 rows of servers: " + server,
		"worker-3": "the kernel lacks 1 row of sets: " + entry,
		"worker-4": "runs version v0.0.9; 6 of 7 nodes run v0.1.0",
		"worker-5": "is in iptables mode; 6 of 7 nodes are in ipvs mode",
		"worker-6": "has not answered: no answer within 50ms",
	})
	if r.OK || r.Answered != 7 || r.Nodes != 8 {
		t.Errorf("ok %t, %d of %d answered", r.OK, r.Answered, r.Nodes)
	}
	golden.Check(t, "status.txt", screen)
	golden.Check(t, "status-wide.txt", text(t, r, true))
}

func TestExplainNamesFaultsOfSingleNodes(t *testing.T) {
	r := fiveFaults(t).run(t, &cluster.Explain{Target: "default/web"})
	screen := text(t, r, false)
	namesFaults(t, screen, map[string]string{
		"worker-2": "virtual server -t 10.96.0.10:80 is missing in the kernel",
		"worker-3": "set KUBE-CLUSTER-IP lacks an entry",
		"worker-4": "runs version v0.0.9",
		"worker-5": "is in iptables mode",
		"worker-6": "has not answered",
	})
	golden.Check(t, "explain.txt", screen)
}

// wellFleet is three nodes without a fault.
func wellFleet(t testing.TB) fleet {
	f := fleet{}
	for _, name := range []string{"worker-1", "worker-9", "worker-10"} {
		f[name] = wellNode(t, name)
	}
	return f
}

// TestNodesThatAgree: a value that is the same on all nodes is printed once.
func TestNodesThatAgree(t *testing.T) {
	f := wellFleet(t)
	for name, q := range map[string]cluster.Question{"status": &cluster.Status{Now: now}, "explain": &cluster.Explain{Target: "default/web"}, "diff": &cluster.Diff{}, "versions": &cluster.Versions{}} {
		r := f.run(t, q)
		if !r.OK || len(r.Findings) != 0 {
			t.Errorf("%s: ok %t, findings %v", name, r.OK, r.Findings)
		}
		golden.Check(t, "agree-"+name+".txt", text(t, r, false))
	}
}

// TestRemarksAreNoFaults: a sentence that a well node has, too, is no finding of another one.
func TestRemarksAreNoFaults(t *testing.T) {
	f := wellFleet(t)
	const remark = "draining, for the connections they have: 10.244.0.6"
	f["worker-1"]["explain"] = says(t, 0, explain.Report{OK: true, Verdict: []string{allIsWell, remark}})
	f["worker-9"]["explain"] = says(t, 1, explain.Report{Verdict: []string{"chain is missing", remark}})
	r := f.run(t, &cluster.Explain{Target: "default/web"})
	if len(r.Findings) != 1 || r.Findings[0].What != "chain is missing" || len(r.Items) != 4 {
		t.Errorf("findings %v, %d sentences", r.Findings, len(r.Items))
	}
}

func TestStatesOfAgents(t *testing.T) {
	f := fleet{}
	for name, change := range map[string]func(*agent.Status){
		"a-waits":     func(s *agent.Status) { s.Synced, s.Complete, s.Ready = false, false, false },
		"b-fills":     func(s *agent.Status) { s.Ready = false },
		"c-fails":     func(s *agent.Status) { s.Failures, s.LastError, s.Tables[0].Updates = 3, "no space", 2 },
		"d-unhealthy": func(s *agent.Status) { s.Healthy = false },
		"e-unread":    func(s *agent.Status) { s.Unreadable = []string{"a.yaml: not YAML"}; s.AuditError = "servers: timeout" },
		"f-sweep":     func(s *agent.Status) { s.SweepError = "chain is busy" },
		"g-scheduler": func(s *agent.Status) { s.Scheduler = "wlc" },
		"h-kernel":    func(s *agent.Status) { s.Kernel = "5.15.0" },
		"i-well":      func(*agent.Status) {},
	} {
		s := wellStatus(name)
		change(&s)
		f[name] = map[string]cluster.Answer{"show status": says(t, 0, s)}
	}
	golden.Check(t, "states.txt", text(t, f.run(t, &cluster.Status{Quick: true, Now: now}), false))
}

// TestBadAnswers: garbage, an answer without output, one that is too large and one of a hostile pod are
// reasons of silent nodes, of bounded length and printable.
func TestBadAnswers(t *testing.T) {
	f := wellFleet(t)
	f["garbage"] = map[string]cluster.Answer{"version": {Out: []byte("<html>\x1b[2J")}}
	f["empty"] = map[string]cluster.Answer{"version": {Status: 137}}
	f["large"] = map[string]cluster.Answer{"version": {Out: make([]byte, 5<<20)}}
	f["hostile"] = map[string]cluster.Answer{"version": refuses("warning: x\n\nkube-ipvs: \x1b[31m" + strings.Repeat("ä", 1000) + "\nmore\n")}
	r := f.run(t, &cluster.Versions{})
	if r.Answered != 3 || len(r.Silent) != 4 {
		t.Errorf("%d answered, silent %v", r.Answered, r.Silent)
	}
	screen := text(t, r, false)
	if strings.ContainsRune(screen, 0x1b) {
		t.Errorf("an escape sequence reaches the terminal: %q", screen)
	}
	golden.Check(t, "bad-answers.txt", screen)
}

// TestNoNodeAnswers: a report without answers is not well, and neither is one without nodes.
func TestNoNodeAnswers(t *testing.T) {
	if r := (fleet{"a": nil}).run(t, &cluster.Versions{}); r.OK || r.Answered != 0 {
		t.Errorf("ok %t with %d answers", r.OK, r.Answered)
	}
	if r := (fleet{}).run(t, &cluster.Versions{}); r.OK {
		t.Error("no node, and all is well")
	}
}

func TestServices(t *testing.T) {
	f := fleet{}
	row := func(name string, state inspect.ServiceState, backends int) inspect.ServiceRow {
		return inspect.ServiceRow{
			Namespace: "shop", Name: name, State: state, Kinds: []string{"ClusterIP"}, VIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")},
			Ports: []string{"80/tcp"}, Schedulers: []string{"rr"}, Backends: backends,
		}
	}
	local := func(state inspect.ServiceState, backends int) inspect.ServiceRow {
		r := row("local", state, backends)
		r.ExternalLocal = true
		return r
	}
	moved := row("moved", inspect.StateServing, 1)
	moved.VIPs = []netip.Addr{netip.MustParseAddr("10.96.0.99")}
	usual := []inspect.ServiceRow{row("cart", inspect.StateServing, 2), row("later", inspect.StateNoBackends, 0), local(inspect.StateServing, 1), row("moved", inspect.StateServing, 1)}
	for node, rows := range map[string][]inspect.ServiceRow{
		"worker-1": usual, "worker-2": usual,
		"worker-3": {row("cart", inspect.StateNoBackends, 0), row("later", inspect.StateNoBackends, 0), local(inspect.StateNoBackends, 0), moved},
		"worker-4": {row("later", inspect.StateNoBackends, 0), local(inspect.StateServing, 1), row("moved", inspect.StateServing, 1)},
	} {
		f[node] = map[string]cluster.Answer{"show services": says(t, 0, inspect.List[inspect.ServiceRow]{Items: rows})}
	}
	r := f.run(t, &cluster.Services{})
	for _, x := range r.Findings {
		if strings.Contains(x.What, "shop/local") {
			t.Errorf("a policy Local is no difference: %s", x.What)
		}
	}
	golden.Check(t, "services.txt", text(t, r, false))
	golden.Check(t, "services-wide.txt", text(t, r, true))
}

// TestManyServicesDifferAlike: one difference of many Services on the same nodes is one finding.
func TestManyServicesDifferAlike(t *testing.T) {
	f := fleet{}
	for _, node := range []string{"a", "b", "c"} {
		var list inspect.List[inspect.ServiceRow]
		for i := range 100 {
			if node != "c" || i%2 == 0 {
				list.Items = append(list.Items, inspect.ServiceRow{Namespace: "shop", Name: fmt.Sprint("s", i), State: inspect.StateServing})
			}
		}
		f[node] = map[string]cluster.Answer{"show services": says(t, 0, list)}
	}
	r := f.run(t, &cluster.Services{})
	if len(r.Findings) != 1 || r.Findings[0].What != "50 Services (shop/s1, shop/s11, shop/s13, ...): absent here, serving on 2 nodes" {
		t.Errorf("findings %+v", r.Findings)
	}
}

func TestServiceThatNoNodeKnows(t *testing.T) {
	f := fleet{"a": {"show services": {Status: 1, Notes: "kube-ipvs: no Service shop/nope is known to this node\n"}}}
	if r := f.run(t, &cluster.Services{Target: "shop/nope"}); r.OK || r.Answered != 1 || len(r.Findings) != 1 {
		t.Errorf("ok %t, %d answered, findings %v", r.OK, r.Answered, r.Findings)
	}
}

func TestDiff(t *testing.T) {
	f := fiveFaults(t)
	f["worker-7"]["diff"] = says(t, 1, linediff.Report{Mode: "ipvs", Rows: []linediff.Odd{
		{Kind: "sets", Side: linediff.Desired, Row: entry}, {Kind: "addresses", Side: linediff.Kernel, Row: "ip addr add 10.96.0.99/32 dev kube-ipvs0"},
	}})
	golden.Check(t, "diff.txt", text(t, f.run(t, &cluster.Diff{}), false))
}

// TestDiffIsBounded: a node with more rows than are joined still has all of them counted.
func TestDiffIsBounded(t *testing.T) {
	rows := make([]linediff.Odd, 6000)
	for i := range rows {
		rows[i] = linediff.Odd{Kind: "sets", Side: linediff.Desired, Row: fmt.Sprint("add X ", i)}
	}
	r := (fleet{"a": {"diff": says(t, 1, linediff.Report{Rows: rows})}}).run(t, &cluster.Diff{})
	if len(r.Items) != 5000 || r.More != 1000 || r.Findings[0].What != "the kernel lacks 6000 rows of sets: add X 0, ..." {
		t.Errorf("%d rows and %d more, findings %v", len(r.Items), r.More, r.Findings)
	}
}

func TestCheck(t *testing.T) {
	ok := diagnosis.Item{Name: "device", State: diagnosis.OK}
	warn := diagnosis.Item{Name: "conntrack table", State: diagnosis.Warn, Detail: "80 % full", Remedy: "sysctl -w net.netfilter.nf_conntrack_max=262144"}
	lacks := diagnosis.Item{Name: "scheduler rr", State: diagnosis.Lacks, Detail: "no module ip_vs_rr", Remedy: "modprobe ip_vs_rr"}
	f := fleet{
		"worker-1": {"check": says(t, 0, diagnosis.Report{Items: []diagnosis.Item{ok}, Fit: true})},
		"worker-2": {"check": says(t, 0, diagnosis.Report{Items: []diagnosis.Item{ok, warn}, Fit: true})},
		"worker-3": {"check": says(t, 1, diagnosis.Report{Items: []diagnosis.Item{ok, lacks}})},
		"worker-4": {"check": says(t, 1, diagnosis.Report{Items: []diagnosis.Item{ok}})},
	}
	golden.Check(t, "check.txt", text(t, f.run(t, &cluster.Check{}), true))
}

func TestVersions(t *testing.T) {
	f := wellFleet(t)
	f["worker-2"] = map[string]cluster.Answer{"version": says(t, 0, version.Details{Version: "v0.0.9", Go: "go1.25.0", Platform: "linux/arm64"})}
	golden.Check(t, "versions.txt", text(t, f.run(t, &cluster.Versions{}), true))
}

func TestAudit(t *testing.T) {
	f := fleet{
		"worker-1": {"audit": says(t, 0, agent.AuditReport{Tables: []agent.AuditTable{{Table: "members", Found: 2, Rows: []string{entry}, More: 1}}})},
		"worker-2": {"audit": says(t, 1, agent.AuditReport{Tables: []agent.AuditTable{{Table: "servers", Found: 1, Remaining: 1}}, LastError: "no space", Unread: "rules: busy"})},
		"worker-3": {"audit": refuses("kube-ipvs: agent says: nothing to audit yet\n")},
	}
	golden.Check(t, "audit.txt", text(t, f.run(t, &cluster.Audit{}), false))
}

func TestTop(t *testing.T) {
	service := func(name string, bytes float64, active uint64, skew float64) top.ServiceReport {
		return top.ServiceReport{Namespace: "shop", Name: name, Rates: top.Rates{BytesIn: bytes, Connections: 1}, Load: &top.Load{Active: active, Backends: 2, Skew: skew}}
	}
	f := fleet{
		"worker-1": {"top": says(t, 0, top.Report{Services: []top.ServiceReport{service("cart", 3000, 4, 1), service("idle", 0, 2, 2)}})},
		"worker-2": {"top": says(t, 0, top.Report{Services: []top.ServiceReport{service("cart", 1000, 1, 1.5), service("idle", 0, 0, 0)}})},
		"worker-3": {"top": refuses("kube-ipvs: the agent is in iptables mode\n")},
	}
	golden.Check(t, "top.txt", text(t, f.run(t, &cluster.Top{}), false))
	if r := f.run(t, &cluster.Top{Limit: 1}); len(r.Items) != 1 || r.More != 1 {
		t.Errorf("%d rows and %d more with a limit of 1", len(r.Items), r.More)
	}
	backend := func(at string, bytes float64, drains bool) top.BackendReport {
		return top.BackendReport{Address: at, Weight: 1, Active: 1, Draining: drains, Rates: top.Rates{BytesOut: bytes}}
	}
	f = fleet{
		"worker-1": {"top": says(t, 0, top.Report{Backends: []top.BackendReport{backend("10.244.0.5:80", 10, false), backend("10.244.0.6:80", 500, true)}})},
		"worker-2": {"top": says(t, 0, top.Report{Backends: []top.BackendReport{backend("10.244.0.5:80", 30, false)}})},
	}
	golden.Check(t, "top-backends.txt", text(t, f.run(t, &cluster.Top{Service: "shop/cart"}), false))
}

func TestDrains(t *testing.T) {
	until, later, two := moment.Add(time.Minute), moment.Add(2*time.Minute), uint32(2)
	moving := func(frontend string, until *time.Time) inspect.MovingRow {
		return inspect.MovingRow{Frontend: frontend, Backend: "10.244.0.5:80", Namespace: "shop", Name: "cart", State: inspect.Draining, Until: until, Active: &two}
	}
	f := fleet{
		"worker-1": {"show draining": says(t, 0, inspect.List[inspect.MovingRow]{Items: []inspect.MovingRow{moving("10.96.0.1:80/tcp", &until), moving("10.96.0.2:80/tcp", nil)}})},
		"worker-2": {"show draining": says(t, 0, inspect.List[inspect.MovingRow]{Items: []inspect.MovingRow{moving("10.96.0.1:80/tcp", &later)}, More: map[string]int{"draining": 7}})},
	}
	golden.Check(t, "drains.txt", text(t, f.run(t, &cluster.Drains{Now: now}), false))
}

// TestRunIsBounded: no more nodes are asked at a time than Parallel, and progress ends at all.
func TestRunIsBounded(t *testing.T) {
	nodes := make([]cluster.Node, 50)
	for i := range nodes {
		nodes[i].Name = fmt.Sprint("n", i)
	}
	var busy, most atomic.Int64
	asks := func(context.Context, cluster.Node, []string, int64) (cluster.Answer, error) {
		if n := busy.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(time.Millisecond)
		busy.Add(-1)
		return cluster.Answer{}, errors.New("no")
	}
	last := 0
	cluster.Run(t.Context(), nodes, asks, &cluster.Versions{}, cluster.Options{Parallel: 4, Deadline: time.Minute, Progress: func(done, of int) {
		if done != last+1 || of != 50 {
			t.Errorf("progress %d of %d after %d", done, of, last)
		}
		last = done
	}})
	if most.Load() > 4 || most.Load() < 2 || last != 50 {
		t.Errorf("%d at a time, %d done", most.Load(), last)
	}
}
