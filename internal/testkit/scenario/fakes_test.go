package scenario_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

const web = `apiVersion: v1
kind: Service
metadata: {namespace: default, name: web}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
`

// node returns a node with one Service on disk and no agent yet.
func node(t *testing.T) *scenario.Fakes {
	t.Helper()
	return nodeWith(t, map[string]string{"web.yaml": web})
}

// nodeWith returns a node with the given manifests on disk.
func nodeWith(t *testing.T, manifests map[string]string) *scenario.Fakes {
	t.Helper()
	work := t.TempDir()
	if err := os.Mkdir(filepath.Join(work, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range manifests {
		must(t, os.WriteFile(filepath.Join(work, "manifests", name), []byte(text), 0o644))
	}
	n := scenario.NewFakes(work)
	t.Cleanup(n.Close)
	return n
}

// eventually asks until the answer is yes.
func eventually(t *testing.T, n *scenario.Fakes, what string, ask func() bool) {
	t.Helper()
	interval, deadline := n.Pace()
	for until := time.Now().Add(deadline); !ask(); time.Sleep(interval) {
		if time.Now().After(until) {
			t.Fatalf("never: %s; the log:\n%s", what, n.Log())
		}
	}
}

func asPlanned(n *scenario.Fakes) func() bool {
	return func() bool {
		diff, err := scenario.Differ(n, scenario.Start{})
		return err == nil && diff == ""
	}
}

func TestKernelOutlivesAgents(t *testing.T) {
	n := node(t)
	must(t, n.Start(scenario.Start{}))
	eventually(t, n, "the kernel is as planned", asPlanned(n))
	must(t, n.Kill())
	if !asPlanned(n)() {
		t.Error("the kernel changed with the end of the agent")
	}
	if _, err := n.Status(context.Background()); err == nil {
		t.Error("an agent that is gone answered")
	}
	must(t, n.Start(scenario.Start{}))
	if err := n.Start(scenario.Start{}); err == nil {
		t.Error("two agents run at a time")
	}
}

func TestCrashedAgentIsStartedAgain(t *testing.T) {
	n := node(t)
	n.CrashAtCall("servers", 2) // 1 lists, 2 writes
	must(t, n.Start(scenario.Start{}))
	eventually(t, n, "the kernel is as planned", asPlanned(n))
	if got := strings.Count(n.Log(), "sources in sync"); got != 2 {
		t.Errorf("%d agents came in sync, want 2:\n%s", got, n.Log())
	}
}

func TestFaultsHoldUntilHealed(t *testing.T) {
	n := node(t)
	must(t, n.Fault("all", []string{"always"}))
	must(t, n.Start(scenario.Start{}))
	eventually(t, n, "a call failed", func() bool { return strings.Contains(n.Log(), "fault injected") })
	if text, _ := n.Text("servers"); text != "" {
		t.Errorf("the kernel was reached:\n%s", text)
	}
	n.Heal()
	eventually(t, n, "the kernel is as planned", asPlanned(n))
}

func TestFaultIsSpelledRight(t *testing.T) {
	n := node(t)
	for _, line := range []string{
		"cellar next", "sets soon", "sets nth 0", "sets row", "sets for", "sets for ever", "sets next sooner", "sets always hang twice", "links row 10.96.0.10 hang",
		"sets row 10.96.0.10 EEXIST", "sets next EIO",
	} {
		if words := strings.Fields(line); n.Fault(words[0], words[1:]) == nil {
			t.Errorf("fault %s was taken", line)
		}
	}
	for _, line := range []string{"all next", "sets for 3", "rules always hang", "links nth 2 ENOBUFS", "servers row 10.96.0.10 ENOENT", "servers row 10.96.0.10"} {
		words := strings.Fields(line)
		if err := n.Fault(words[0], words[1:]); err != nil {
			t.Errorf("fault %s: %v", line, err)
		}
	}
}

const open = `apiVersion: v1
kind: Service
metadata: {namespace: default, name: open}
spec: {type: NodePort, clusterIP: 10.96.0.11, externalIPs: [192.0.2.254], ports: [{port: 80, nodePort: 30080}]}
`

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func TestHostMoves(t *testing.T) {
	n := nodeWith(t, map[string]string{"web.yaml": web, "open.yaml": open})
	must(t, n.Host(addrs("192.0.2.1", "192.0.2.2")))
	must(t, n.Start(scenario.Start{Audit: true, Flags: []string{"--nodeport-addresses=192.0.2.0/24"}}))
	for _, tt := range []struct {
		name      string
		do        func() error
		servers   string
		addresses string
	}{
		{"at the start", func() error { return nil }, "192.0.2.1:30080 192.0.2.2:30080", "10.96.0.10 10.96.0.11 192.0.2.254"},
		{"another address", func() error { return n.Host(addrs("192.0.2.2", "192.0.2.3", "198.51.100.1")) }, "192.0.2.2:30080 192.0.2.3:30080", "10.96.0.10 10.96.0.11 192.0.2.254"},
		{"a gateway", func() error { return n.Gateway(addrs("192.0.2.254")) }, "192.0.2.2:30080 192.0.2.3:30080", "10.96.0.10 10.96.0.11"},
		{"none", func() error { return errors.Join(n.Host(nil), n.Gateway(nil)) }, "", "10.96.0.10 10.96.0.11 192.0.2.254"},
	} {
		must(t, tt.do())
		eventually(t, n, tt.name, func() bool {
			return found(n, "servers", `-A -t (\S+:30080)`) == tt.servers && found(n, "addresses", `add (\S+)/`) == tt.addresses
		})
	}
}

// found lists what the pattern finds in the kernel, in order.
func found(n *scenario.Fakes, kind, pattern string) string {
	text, _ := n.Text(kind)
	var out []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return strings.Join(out, " ")
}

func TestToolsRefuseWhatTheKernelRefuses(t *testing.T) {
	n := node(t)
	must(t, n.Start(scenario.Start{}))
	eventually(t, n, "the kernel is as planned", asPlanned(n))
	for _, line := range []string{
		"ipvsadm -E -t 10.9.9.9:80 -s rr", "ipvsadm -a -t 10.9.9.9:80 -r 10.1.1.1:80", "ipvsadm --zero",
		"ipset destroy KUBE-CLUSTER-IP", "ipset add NONE 10.1.1.1", "ipset teleport A",
		"iptables -t nat -Z", "ip addr add nonsense dev kube-ipvs0", "ip rule list all", "nft flush ruleset",
	} {
		if err := n.Tool(strings.Fields(line)); err == nil {
			t.Errorf("%q was carried out", line)
		}
	}
}

func TestCleanupLeavesNothing(t *testing.T) {
	n := node(t)
	must(t, n.Start(scenario.Start{}))
	eventually(t, n, "the kernel is as planned", asPlanned(n))
	must(t, n.Stop())
	must(t, n.Cleanup(scenario.Start{}))
	for _, kind := range append(scenario.Kinds(), "link") {
		text, err := n.Text(kind)
		if err == nil {
			text, err = scenario.Normal(kind, text)
		}
		if err != nil || text != "" {
			t.Errorf("%s left, error %v:\n%s", kind, err, text)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An agent that dies takes with it what it had seen and not yet said. The one in
// its place finds the kernel as it is, so no script may wait for those words.
func TestNoWordIsAwaitedOfTheDead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "words.txtar")
	must(t, os.WriteFile(file, []byte("start\nexpect-log 'what only the dead have seen'\n-- manifests/web.yaml --\n"+web), 0o644))
	scenario.Run(t, scenario.Options{
		Files: []string{file}, Driver: "fakes", Crash: true,
		Open: func(work string) (scenario.Driver, error) {
			n := scenario.NewFakes(work)
			n.CrashAtCall("servers", 2)
			return n, nil
		},
	})
}

// An audit of iptables mode reads the rules beside the loop's own writes.
func TestIPTablesModeOverRulesAlone(t *testing.T) {
	n := nodeWith(t, map[string]string{"web.yaml": web, "open.yaml": open})
	must(t, n.Host(addrs("192.0.2.1")))
	s := scenario.Start{Audit: true, Flags: []string{"--proxy-mode=iptables"}}
	asWanted := func() bool {
		diff, err := scenario.Differ(n, s)
		return err == nil && diff == ""
	}
	must(t, n.Start(s))
	eventually(t, n, "the kernel is as planned", asWanted)
	must(t, n.Tool(strings.Fields("iptables -t nat -F")))
	eventually(t, n, "the kernel is as planned again", asWanted)
	if calls := n.Calls(); calls["servers"]+calls["sets"] > 0 {
		t.Errorf("calls of other packages: %v", calls)
	}
	must(t, n.Stop())
	must(t, n.Cleanup(s))
	if text, _ := n.Text("rules"); text != "" {
		t.Errorf("rules left:\n%s", text)
	}
}
