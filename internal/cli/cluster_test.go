package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/linediff"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/agentapi"
	"github.com/kube-ipvs/kube-ipvs/internal/top"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// recorded are the answers of an agent by verb.
type recorded map[string]agentapi.Answer

// agent answers a command line.
func (r recorded) agent(args []string) agentapi.Answer {
	if a, there := r[args[0]]; there {
		return a
	}
	if a, there := r[strings.Join(args[:2], " ")]; there {
		return a
	}
	return agentapi.Answer{Status: 2, Notes: fmt.Sprintf("kube-ipvs: %q is neither a verb nor a flag\n", args)}
}

// printed is an answer in JSON.
func printed(t testing.TB, status int, v any) agentapi.Answer {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return agentapi.Answer{Status: status, Stdout: string(text)}
}

// wellAgent has the answers of an agent without a fault, which serves so many Services.
func wellAgent(t testing.TB, services int) recorded {
	s := agent.Status{Mode: "ipvs", About: agent.About{Version: "v0.1.0", Kernel: "6.12.0", Scheduler: "rr"}, Synced: true, Complete: true, Ready: true, Healthy: true}
	list, carried := inspect.List[inspect.ServiceRow]{Items: []inspect.ServiceRow{}}, []top.ServiceReport{}
	for i := range services {
		name := fmt.Sprint("service-", i)
		list.Items = append(list.Items, inspect.ServiceRow{
			Namespace: "shop", Name: name, Source: "kube", State: inspect.StateServing, Kinds: []string{"ClusterIP", "NodePort"}, Backends: 3, Frontends: 4,
			VIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})}, Ports: []string{"80/tcp", "30080/tcp"}, Schedulers: []string{"rr"},
		})
		carried = append(carried, top.ServiceReport{Namespace: "shop", Name: name, Addresses: []string{"10.96.0.1:80/tcp"}, Schedulers: []string{"rr"}, Rates: top.Rates{BytesIn: 100}, Load: &top.Load{Active: 1, Backends: 3}})
	}
	return recorded{
		"show status":   printed(t, 0, s),
		"show services": printed(t, 0, list),
		"show draining": printed(t, 0, inspect.List[inspect.MovingRow]{Items: []inspect.MovingRow{{Frontend: "10.96.0.1:80/tcp", Backend: "10.244.0.5:80", Namespace: "shop", Name: "cart", State: inspect.Draining}}}),
		"diff":          printed(t, 0, linediff.Report{Mode: "ipvs", Equal: true, Rows: []linediff.Odd{}}),
		"explain":       printed(t, 0, explain.Report{Asked: "shop/cart", OK: true, Verdict: []string{"all is well"}}),
		"version":       printed(t, 0, version.Details{Version: "v0.1.0", Go: "go1.26.8", Platform: "linux/amd64"}),
		"check":         printed(t, 0, diagnosis.Report{Items: []diagnosis.Item{{Name: "device", State: diagnosis.OK}}, Fit: true}),
		"audit":         printed(t, 0, agent.AuditReport{Tables: []agent.AuditTable{}}),
		"top":           printed(t, 0, top.Report{Seconds: 2, Services: carried}),
	}
}

// with is the agent with another answer.
func (r recorded) with(verb string, a agentapi.Answer) recorded {
	out := recorded{verb: a}
	for k, v := range r {
		if k != verb {
			out[k] = v
		}
	}
	return out
}

// startCluster is an API server with an agent on each node.
func startCluster(t *testing.T, agents ...recorded) (s *agentapi.Server, kubeconfig string) {
	t.Helper()
	var pods []agentapi.Pod
	for i, a := range agents {
		name := fmt.Sprint("worker-", i+1)
		pods = append(pods, agentapi.Pod{Name: "kube-ipvs-" + name, Node: name, Agent: a.agent, Args: []string{"--hostname-override=" + name}})
	}
	s = agentapi.Start(t, pods...)
	return s, s.Kubeconfig(t)
}

// plugin runs the plugin of kubectl and returns its output and exit status.
func plugin(t *testing.T, args ...string) (out, notes string, status int) {
	t.Helper()
	var o, n strings.Builder
	root := calledAs(append([]string{"/usr/bin/" + kubectlName}, args...))
	root.SetOut(&o)
	root.SetErr(&n)
	cmd, err := root.ExecuteContextC(t.Context())
	status = report(cmd, err, &n)
	return o.String(), n.String(), status
}

// faultyCluster has the five faults of single nodes, and two nodes without one.
func faultyCluster(t *testing.T) (kubeconfig string) {
	well := wellAgent(t, 2)
	lacks := func(kind, row, sentence string) recorded {
		return well.with("diff", printed(t, 1, linediff.Report{Mode: "ipvs", Rows: []linediff.Odd{{Kind: kind, Side: linediff.Desired, Row: row}}})).
			with("explain", printed(t, 1, explain.Report{Verdict: []string{sentence}}))
	}
	rules := agent.Status{Mode: "iptables", About: agent.About{Version: "v0.1.0"}, Synced: true, Complete: true, Ready: true, Healthy: true}
	old := rules
	old.Mode, old.Version = "ipvs", "v0.0.9"
	_, kubeconfig = startCluster(t, well, well,
		lacks("servers", "-A -t 10.96.0.10:80 -s rr", "virtual server -t 10.96.0.10:80 is missing"),
		lacks("sets", "add KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "set KUBE-CLUSTER-IP lacks an entry"),
		well.with("show status", printed(t, 0, old)), well.with("show status", printed(t, 0, rules)),
		well.with("show status", agentapi.Answer{Hang: true}),
	)
	return kubeconfig
}

// TestClusterNamesFaults: the plugin names each fault with its node on the first screen.
func TestClusterNamesFaults(t *testing.T) {
	kubeconfig := faultyCluster(t)
	for verb, faults := range map[string][]string{
		"status":            {"worker-3: the kernel lacks 1 row of servers", "worker-4: the kernel lacks 1 row of sets", "worker-5: runs version v0.0.9", "worker-6: is in iptables mode", "worker-7: has not answered: no answer within 15s"},
		"explain shop/cart": {"worker-3: virtual server", "worker-4: set KUBE-CLUSTER-IP", "worker-5: runs version v0.0.9", "worker-6: is in iptables mode", "worker-7: has not answered"},
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			out, notes, status := plugin(t, append(strings.Fields(verb), "--kubeconfig", kubeconfig, "--timeout=15s")...)
			if status != exitFound || notes != "" {
				t.Errorf("%s: status %d, notes %q", verb, status, notes)
			}
			lines := strings.Split(out, "\n")
			first := strings.Join(lines[:min(len(lines), 20)], "\n")
			for _, f := range faults {
				if !strings.Contains(first, "\n"+f) {
					t.Errorf("%s: the first screen does not say %q:\n%s", verb, f, out)
				}
			}
		})
	}
}

// clusterLines are a line of each verb.
func clusterLines() []string {
	return []string{"status", "status --quick", "services", "services -n shop", "services shop/service-1", "explain shop/cart", "explain 10.96.0.1:80", "diff", "diff --against=api", "check", "top", "top --limit=1", "drain-status", "drain-status cart", "versions", "audit"}
}

// TestClusterVerbs: each verb, under both names, ends well with nodes that agree, and its JSON is
// what the schema requires.
func TestClusterVerbs(t *testing.T) {
	_, kubeconfig := startCluster(t, wellAgent(t, 2), wellAgent(t, 2), wellAgent(t, 2))
	for _, line := range clusterLines() {
		args := append(strings.Fields(line), "--kubeconfig", kubeconfig)
		out, notes, status := plugin(t, args...)
		if status != 0 || notes != "" || !strings.Contains(out, "3 nodes agree, and nothing is wrong\n") {
			t.Errorf("%s: status %d, notes %q, output\n%s", line, status, notes, out)
		}
		out, _, _ = plugin(t, append(args, "-o", "json")...)
		fits(t, "cluster", out)
		if out := execute(t, append([]string{"cluster"}, append(args, "-o", "yaml")...)...); !strings.Contains(out, "\nok: true\n") {
			t.Errorf("cluster %s -o yaml:\n%s", line, out)
		}
	}
}

// TestClusterAsksNodes: a verb runs on a node with the settings of its agent.
func TestClusterAsksNodes(t *testing.T) {
	for line, want := range map[string]string{
		"services cart":    "show services -o json shop/cart",
		"services -n bank": "show services -o json --namespace bank",
		"explain cart":     "explain -o json shop/cart",
		"explain bank/cart --from kube-ipvs-worker-1":    "explain -o json --from 10.244.9.9 bank/cart",
		"explain 10.96.0.1:53/udp --from 192.0.2.7":      "explain -o json --from 192.0.2.7 10.96.0.1:53/udp",
		"diff --against api":                             "diff -o json --source-dir=",
		"top cart -n bank --sample=3s":                   "top --once -o json --interval 3s bank/cart",
		"drain-status -n bank":                           "show draining -o json --namespace bank",
		"check --node worker-1":                          "check -o json",
		"versions --selector=a=b --agent-namespace=apps": "version -o json",
	} {
		s, kubeconfig := startCluster(t, wellAgent(t, 0))
		if _, notes, status := plugin(t, append(strings.Fields(line), "--kubeconfig", kubeconfig)...); status == exitFailed {
			t.Errorf("%s: status %d: %s", line, status, notes)
		}
		seen := s.Seen()
		last := strings.Join(seen[len(seen)-1], " ")
		if last != "kube-ipvs "+want+" --hostname-override=worker-1" {
			t.Errorf("%s asks %q", line, last)
		}
	}
}

func TestClusterMistakes(t *testing.T) {
	s, kubeconfig := startCluster(t, wellAgent(t, 0))
	for line, want := range map[string]string{
		"status now":                      "neither a verb nor a flag",
		"status -o xml":                   `--output: "xml" is not one of table, wide, json, yaml`,
		"status --parallel=0":             "--parallel: 0 is not from 1 to 256",
		"status --timeout=1ms":            "--timeout: 1ms is less than 1s",
		"explain":                         "give one Service or address",
		"explain a/b/c":                   "neither namespace/name nor ip",
		"explain x --from nope":           `--from: get pod shop/nope: pods "nope" not found`,
		"explain x --from ../../y":        "is no name of a pod",
		"services a/b/c":                  `"a/b/c" is not [namespace/]name`,
		"services -n --x=y":               `"--x=y" is no name`,
		"diff --against=kernel":           `"kernel" is neither agent nor api`,
		"top --sample=1ms":                "--sample: 1ms is not from 1s to half of --timeout",
		"top --limit=-1":                  "--limit: -1 is less than 0",
		"ui --listen=0.0.0.0:0":           `--listen: "0.0.0.0:0" is no loopback address`,
		"status --node worker-9":          "no pod of an agent matches k8s-app=kube-ipvs in namespace kube-system on node worker-9",
		"status --kubeconfig=/none":       "find the cluster: stat /none",
		"status --context=other":          "find the cluster: context",
		"status --sever=http://localhost": "did you mean --server?",
	} {
		args := strings.Fields(line)
		if !strings.Contains(line, "--kubeconfig") {
			args = append(args, "--kubeconfig", kubeconfig)
		}
		if _, notes, status := plugin(t, args...); status != exitFailed || !strings.Contains(notes, want) || !strings.HasPrefix(notes, kubectlName+": ") {
			t.Errorf("%s: status %d, says %q, want %q", line, status, notes, want)
		}
	}
	s.Denied = `pods is forbidden: User "x" cannot list resource "pods"`
	if _, notes, status := plugin(t, "status", "--kubeconfig", kubeconfig); status != exitFailed || !strings.Contains(notes, s.Denied) {
		t.Errorf("no rights: status %d, says %q", status, notes)
	}
}

func clusterOutcomes(t *testing.T, run func(...string) func() int) [3]func() int {
	_, well := startCluster(t, wellAgent(t, 1), wellAgent(t, 1))
	_, half := startCluster(t, wellAgent(t, 1), recorded{})
	_, none := startCluster(t, recorded{})
	return [3]func() int{
		run("cluster", "versions", "--kubeconfig", well), run("cluster", "versions", "--kubeconfig", half), run("cluster", "versions", "--kubeconfig", none),
	}
}

// TestClusterWatches: --watch asks again until it is told to stop, and a finding does not end it.
func TestClusterWatches(t *testing.T) {
	s, kubeconfig := startCluster(t, wellAgent(t, 1), recorded{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil && len(s.Seen()) < 6 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	root := NewKubectl()
	root.SetArgs([]string{"versions", "--kubeconfig", kubeconfig, "--watch", "--interval=100ms"})
	var out strings.Builder
	root.SetOut(&out)
	if err := root.ExecuteContext(ctx); err != nil || strings.Count(out.String(), "of 2 nodes 1 agrees, 1 has not answered\n") < 2 {
		t.Errorf("error %v, output\n%s", err, &out)
	}
}

// TestNamesOfTheProgram: each name has its verbs.
func TestNamesOfTheProgram(t *testing.T) {
	for line, want := range map[string]string{
		"kubectl-ipvs --version": "kubectl ipvs version ", "/x/kubectl-ipvs.exe --help": "kubectl ipvs status", "kube-ipvs --version": "kube-ipvs version ",
		"kubectl_complete-ipvs drain": "drain-status\tbackends that drain", "kubectl_complete-ipvs diff --against ": "agent\n",
	} {
		root := calledAs(strings.Split(line, " "))
		var out strings.Builder
		root.SetOut(&out)
		root.SetErr(&out)
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: error %v, no %q in\n%s", line, err, want, &out)
		}
	}
}

// TestClusterUI: the page whose address is printed shows the cluster, until the verb is told to stop.
func TestClusterUI(t *testing.T) {
	_, kubeconfig := startCluster(t, wellAgent(t, 2), recorded{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	root := NewKubectl()
	root.SetArgs([]string{"ui", "--kubeconfig", kubeconfig})
	r, w := io.Pipe()
	root.SetOut(w)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	var url string
	if _, err := fmt.Fscanln(r, &url); err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]string{"": ">shop/service-1</a>", "service?name=shop/service-0": "1 agrees, 1 has not answered", "page.css": "focus-visible"} {
		resp, err := client.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, error %v, no %q in\n%s", path, resp.Status, err, want, text)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestProgress(t *testing.T) {
	var b strings.Builder
	show, end := progressOn(&b)
	show(1, manyNodes-1)
	end()
	if b.Len() > 0 {
		t.Errorf("few nodes: %q", &b)
	}
	for i := range 500 {
		show(i+1, 500)
	}
	end()
	if text := b.String(); strings.Count(text, "\r") != 101 || !strings.HasSuffix(text, "\r500 of 500 nodes\r\x1b[K") {
		t.Errorf("%d steps, ends with %q", strings.Count(text, "\r"), text[max(0, len(text)-40):])
	}
}

// simulated is how many nodes TestClusterOfManyNodes has, and how many Services each of them.
const (
	simulatedNodes    = 500
	simulatedServices = 1000
)

// TestClusterOfManyNodes runs each verb, as a process of its own, against many agents, of which one does not
// answer and one answers garbage. It prints the time and the memory of each.
func TestClusterOfManyNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: 500 simulated nodes")
	}
	agents := slices.Repeat([]recorded{wellAgent(t, simulatedServices)}, simulatedNodes)
	agents[100] = recorded{}
	for verb := range agents[0] {
		agents[200] = agents[200].with(verb, agentapi.Answer{Stdout: "<html>"})
	}
	s, kubeconfig := startCluster(t, agents...)
	for i := range s.Pods { // a list of each node that is like no other: with -n
		well := s.Pods[i].Agent
		s.Pods[i].Agent = func(args []string) agentapi.Answer {
			a := well(args)
			if slices.Contains(args, "--namespace") {
				a.Stdout = strings.Replace(a.Stdout, `"frontends":4`, fmt.Sprintf(`"frontends":%d`, i), 1)
			}
			return a
		}
	}
	for _, line := range []string{"status", "services", "services -n shop", "explain shop/cart", "diff", "check", "top", "drain-status", "versions", "audit"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], append(append([]string{"cluster"}, strings.Fields(line)...), "--kubeconfig", kubeconfig, "-o", "json")...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		start := time.Now()
		var b strings.Builder
		cmd.Stdout = &b
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		resident := peakMemory(cmd.Process.Pid)
		err := cmd.Wait()
		out := []byte(b.String())
		if cmd.ProcessState.ExitCode() != exitFound {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		var r cluster.Report
		if err := json.Unmarshal(out, &r); err != nil || r.Answered != simulatedNodes-2 || len(r.Silent) != 2 || len(r.Findings) != 0 {
			t.Errorf("%s: %d answered, %d silent, findings %v, error %v", line, r.Answered, len(r.Silent), r.Findings, err)
		}
		t.Logf("%d nodes, %d Services: %-18s %6.2f s, %4d MiB resident", simulatedNodes, simulatedServices, line, time.Since(start).Seconds(), <-resident>>10)
	}
}

// peakMemory returns, when a process ends, the most memory in KiB that it had resident. Resource usage
// would include the memory of this process, which started it.
func peakMemory(pid int) <-chan int {
	done := make(chan int, 1)
	go func() {
		last := 0
		for {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, rest, found := strings.Cut(string(text), "VmHWM:")
			if err != nil || !found { // a zombie has no memory
				done <- last
				return
			}
			_, _ = fmt.Sscan(rest, &last)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return done
}
