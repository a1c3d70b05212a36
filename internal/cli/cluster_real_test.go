package cli

import (
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/agentapi"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// recordNode runs an agent over a kernel made of fakes, breaks it, and records what verbs print there.
func recordNode(t *testing.T, release string, breaks func(n *fakeNode), flags ...string) recorded {
	t.Helper()
	out := recorded{"version": printed(t, 0, version.Details{Version: release, Go: "go1.26.8", Platform: "linux/amd64"})}
	onNode(t, serviceText("web", webSpec, "")+sliceText("web", "", near), flags, func(n *fakeNode) {
		if breaks != nil {
			breaks(n)
		}
		record := func(verb string, run func(w *strings.Builder) error) {
			var b strings.Builder
			status := answered(run(&b))
			out[verb] = agentapi.Answer{Status: status, Stdout: b.String()}
		}
		record("show status", func(w *strings.Builder) error {
			s, err := n.loop.Status(n.Context())
			must(n.T, err)
			return printStatus(page{out: w}, "json", s)
		})
		record("diff", func(w *strings.Builder) error {
			return diff(n.Context(), n.config, agentOf{n}, n.readers(), w, "json")
		})
		record("explain", func(w *strings.Builder) error {
			r := n.explain("default/web", "")
			must(n.T, printReport(w, "json", false, r))
			return reportAnswer(r)
		})
	})
	return out
}

// TestClusterOfRealAgents: the reports of agents on five faults made by hand are understood, and
// each fault is named with its node on the first screen.
func TestClusterOfRealAgents(t *testing.T) {
	well := recordNode(t, "v0.1.0", nil)
	_, kubeconfig := startCluster(t, well, well, well,
		recordNode(t, "v0.1.0", func(n *fakeNode) {
			must(n.T, n.servers.WriteServers(n.Context(), []vserver.ServerChange{{Op: vserver.Delete, Key: webServer}})...)
		}),
		recordNode(t, "v0.1.0", func(n *fakeNode) {
			must(n.T, n.sets.Delete(n.Context(), "KUBE-CLUSTER-IP", ipset.IPPort(webServer.Addr, 6, 80)))
		}),
		recordNode(t, "v0.0.9", nil), recordNode(t, "v0.1.0", nil, "--proxy-mode=iptables"), well.with("show status", agentapi.Answer{Hang: true}),
	)
	for verb, faults := range map[string][]string{
		"status": {
			"worker-4: the kernel lacks 2 rows of servers: -A -t 10.96.0.10:80 -s rr", "worker-5: the kernel lacks 1 row of sets: add KUBE-CLUSTER-IP 10.96.0.10,tcp:80",
			"worker-6: runs version v0.0.9; 6 of 7 nodes run v0.1.0", "worker-7: is in iptables mode; 6 of 7 nodes are in ipvs mode", "worker-8: has not answered",
		},
		"explain default/web": {
			"worker-4: virtual server -t 10.96.0.10:80 is missing in the kernel", "worker-5: set KUBE-CLUSTER-IP lacks an entry in the kernel",
			"worker-6: runs version v0.0.9", "worker-7: is in iptables mode", "worker-8: has not answered",
		},
	} {
		out, notes, status := plugin(t, append(strings.Fields(verb), "--kubeconfig", kubeconfig, "--timeout=1s")...)
		lines := strings.Split(out, "\n")
		first := strings.Join(lines[:min(len(lines), 24)], "\n")
		if status != exitFound || !strings.Contains(first, "of 8 nodes 3 agree, 4 have findings, 1 has not answered\n") {
			t.Errorf("%s: status %d, notes %q:\n%s", verb, status, notes, out)
		}
		for _, f := range faults {
			if !strings.Contains(first, "\n"+f) {
				t.Errorf("%s: the first screen does not say %q:\n%s", verb, f, out)
			}
		}
	}
}

// TestClusterOfARunningAgent: the lists, the status and the audit of an agent that runs are understood as
// its verbs print them.
func TestClusterOfARunningAgent(t *testing.T) {
	shop := openShop(t)
	s := agentapi.Start(t, agentapi.Pod{
		Name: "kube-ipvs-a", Node: "node-a", Args: []string{"--run-dir=" + shop.dir},
		Agent: func(args []string) agentapi.Answer {
			var out, notes strings.Builder
			root := NewRoot()
			root.SetArgs(args)
			root.SetOut(&out)
			root.SetErr(&notes)
			cmd, err := root.ExecuteContextC(t.Context())
			status := report(cmd, err, &notes)
			return agentapi.Answer{Status: status, Stdout: out.String(), Notes: notes.String()}
		},
	})
	kubeconfig := s.Kubeconfig(t)
	for line, want := range map[string]string{
		"status --quick":              "node-a  ", // a row is refused by the kernel of this agent
		"services -n shop":            "shop       ",
		"services nope":               "no Service shop/nope is known",
		"drain-status":                "draining",
		"versions":                    version.String(),
		"services --node node-a -A=x": "unknown shorthand flag",
	} {
		out, notes, _ := plugin(t, append(strings.Fields(line), "--kubeconfig", kubeconfig)...)
		if !strings.Contains(out+notes, want) || strings.Contains(out, "has not answered") {
			t.Errorf("%s: no %q in\n%s%s", line, want, out, notes)
		}
	}
}
