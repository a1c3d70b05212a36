package packet

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/transcript"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// Size of the cluster in which the cost of one change and of a restart is counted.
const (
	manyServices  = 1000
	manyEndpoints = 10
)

// numbered is one of many Services: one port, ten endpoints, a third of them on this node.
func numbered(i int) service {
	s := service{
		name: fmt.Sprintf("svc-%04d", i), vip: pair{v4: fmt.Sprintf("10.100.%d.%d", i/250, i%250+1)},
		ports: []port{{"http", "TCP", 80, 8080}},
	}
	for e := range manyEndpoints {
		s.backends = append(s.backends, numberedEndpoint(i, e))
	}
	return s
}

// servicesOr returns the number of Services that KUBE_IPVS_E2E_SERVICES sets, or else another one.
func servicesOr(t *testing.T, otherwise int) int {
	t.Helper()
	text := os.Getenv("KUBE_IPVS_E2E_SERVICES")
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("KUBE_IPVS_E2E_SERVICES: %v", err)
	}
	return n
}

func numberedEndpoint(i, e int) endpoint {
	n := i*(manyEndpoints+1) + e
	return endpoint{addr: fmt.Sprintf("10.%d.%d.%d", 245+n/62500, n/250%250, n%250+1), node: []string{thisNode, otherNode, otherNode}[e%3]}
}

// TestCostOfOneChangeAndOfARestart counts, with a thousand Services, the kernel's work for one
// edited endpoint and for a restart without changes. It uses the agent's own counters, and the
// system calls of its process.
func TestCostOfOneChangeAndOfARestart(t *testing.T) {
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--drain=0s")
	for i := range manyServices {
		n.write(t, numbered(i))
	}
	start := time.Now()
	s := n.start(t)
	t.Logf("first sync of %d Services: %s, apply alone %s, rows %v", s.Services, time.Since(start).Round(time.Millisecond), s.Last.Took, s.Written)
	base := n.look(t, "nft")
	wantRows(t, "first sync", s, map[string]uint64{
		"sets": base.count("sets", "create KUBE-"), "chains": base.count("rules4", " :KUBE-") + base.count("rules6", " :KUBE-"),
		"jumps": base.count("rules4", jumps...) + base.count("rules6", jumps...),
		// Two of a Service, one of each of its endpoints here, and the addresses of the node.
		"members": 2*manyServices + 4*manyServices + uint64(len(w.node.addresses())),
		"servers": manyServices, "destinations": manyServices * manyEndpoints, "addresses": manyServices,
	})
	t.Run("ten edits one after the other", n.edits)
	t.Run("one endpoint added", func(t *testing.T) {
		added := numbered(7)
		added.backends = append(added.backends, numberedEndpoint(7, manyEndpoints))
		added.backends[manyEndpoints].node = otherNode
		n.oneChange(t, added)
	})
	t.Run("one endpoint becomes unready", func(t *testing.T) {
		edited := numbered(700)
		edited.backends[1].unready = true
		n.oneChange(t, edited)
	})
	t.Run("restart", n.restartUnchanged)
}

// edits measures what a user waits for, with nothing beside it that slows the agent.
func (n *proxy) edits(t *testing.T) {
	table := newTable("edit", "in the kernel after", "apply alone")
	for i := range 10 {
		before, err := n.status()
		if err != nil {
			t.Fatal(err)
		}
		edited := numbered(100 + i)
		edited.backends[2].unready = true
		start := time.Now()
		n.write(t, edited)
		s := n.settle(t, "write the change", func(s agent.Status) bool { return s.Cycles > before.Cycles })
		table.row(i, time.Since(start).Round(time.Millisecond), s.Last.Took.Round(time.Microsecond))
	}
	t.Logf("edits\n%s", table)
}

// oneChange edits one Service by one endpoint on another node, and wants one row, one message that writes and no program.
func (n *proxy) oneChange(t *testing.T, edited service) {
	before := n.shown(t)
	watch := watchCalls(t, n.process.Process.Pid)
	start := time.Now()
	n.write(t, edited)
	n.settle(t, "write the change", func(s agent.Status) bool { return s.Cycles > before.Cycles })
	took := time.Since(start).Round(time.Millisecond)
	after := n.shown(t)
	t.Logf("in the kernel after %s, apply alone %s, rows %+v", took, after.Last.Took, after.Last.Rows)
	calls := watch.end(t)

	wantWritten(t, before, after, map[string]uint64{"destinations": 1})
	if after.Cycles != before.Cycles+1 || after.Last.Services != 1 {
		t.Errorf("%d cycles, the last for %d Services: want one for one", after.Cycles-before.Cycles, after.Last.Services)
	}
	t.Logf("system calls meanwhile:\n%s", strings.Join(calls.netlink, "\n"))
	if len(calls.programs) > 0 {
		t.Errorf("want no program, got\n%s", strings.Join(calls.programs, "\n"))
	}
	if len(calls.writes) != 1 { // the reads of samples, once a second, do not belong to the change
		t.Errorf("%d messages written to the kernel: want one", len(calls.writes))
	}
}

// wantWritten compares the rows that were written between two states.
func wantWritten(t *testing.T, before, after agent.Status, want map[string]uint64) {
	t.Helper()
	wrote := map[string]uint64{}
	for table, rows := range after.Written {
		if d := rows - before.Written[table]; d > 0 {
			wrote[table] = d
		}
	}
	if diff := cmp.Diff(want, wrote); diff != "" {
		t.Errorf("rows written (-want +got):\n%s", diff)
	}
}

// shown is the status as the command line prints it.
func (n *proxy) shown(t *testing.T) agent.Status {
	t.Helper()
	var s agent.Status
	out, err := n.verb("show", "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// restartUnchanged stops the agent and starts it under strace with what others say about the kernel beside it.
func (n *proxy) restartUnchanged(t *testing.T) {
	if took, err := n.stop(t); err != nil {
		t.Errorf("SIGTERM: %v", err)
	} else {
		t.Logf("SIGTERM: ended after %s", took.Round(time.Millisecond))
	}
	before := n.look(t, "nft")
	events := n.events(t)
	record := filepath.Join(t.TempDir(), "strace")
	start := time.Now()
	n.launch(t, append(append(straceArgs(record), "-D", "--seccomp-bpf", program()), n.flags...)) // -D: the agent stays our child
	s := n.settle(t, "be ready", func(s agent.Status) bool { return s.Ready })
	t.Logf("ready again after %s under strace", time.Since(start).Round(time.Millisecond))
	if s.Cycles != 0 || len(s.Written) != 0 {
		t.Errorf("%d cycles, rows %v: want none", s.Cycles, s.Written)
	}
	if _, err := n.stop(t); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	calls := readCalls(t, record)
	t.Logf("%d messages to the kernel, %d of them dumps, %d of them writes; programs started:\n%s",
		len(calls.sent), len(calls.dumps), len(calls.writes), strings.Join(calls.programs, "\n"))
	if len(calls.writes) > 0 {
		t.Errorf("want no write to the kernel, got\n%s", strings.Join(calls.writes, "\n"))
	}
	if got := events(); got != "" {
		t.Errorf("the kernel told of changes:\n%s", got)
	}
	same(t, "kernel after the restart", before, n.look(t, "nft"))
}

// events begins to listen to what the kernel tells of addresses, links, routes, rules, and returns how to end.
func (n *node) events(t *testing.T) func() string {
	t.Helper()
	var heard transcript.Transcript
	var monitors []*exec.Cmd
	for _, args := range [][]string{{"ip", "-o", "monitor", "address", "link", "route"}, {"nft", "monitor"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = &heard, &heard
		n.must(t, n.do(cmd.Start))
		monitors = append(monitors, cmd)
	}
	end := func() {
		for _, cmd := range monitors {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed on purpose
		}
		monitors = nil
	}
	t.Cleanup(end)
	// Both listen once they are seen to: a change of ours comes through.
	n.shell(t, "ip link set nowhere mtu 1400; nft add table ip probe; nft delete table ip probe")
	poll(t, "the monitors", settleTimeout, func() error {
		if text := heard.String(); !strings.Contains(text, "mtu 1400") || !strings.Contains(text, "delete table ip probe") {
			n.shell(t, "ip link set nowhere mtu 1500; ip link set nowhere mtu 1400; nft add table ip probe; nft delete table ip probe")
			return fmt.Errorf("heard %q", text)
		}
		return nil
	})
	seen := len(heard.String())
	return func() string {
		end()
		return otherLinks.ReplaceAllString(heard.String()[seen:], "")
	}
}

// otherLinks are lines about a link that is not ours: a bridge goes on telling about its ports.
var otherLinks = regexp.MustCompile(`(?m)^(Deleted )?[0-9]+: (veth|cni|fab|ext|nowhere|lo)[^\n]*\n`)
