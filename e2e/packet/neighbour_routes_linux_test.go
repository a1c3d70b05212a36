package packet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// fullTable is a number of routes as a router of the Internet may have.
const fullTable = 12 << 13

// TestNeighbourFRR: a node with a full table of routes, which zebra reads. Routes come and go, and the agent starts with all of them.
func TestNeighbourFRR(t *testing.T) {
	const program = "/usr/lib/frr/zebra"
	needProgram(t, program)
	n := newSharedNode(t, "iptables")
	n.agent.start(t, "--ipvs-sync-period", "2s")
	n.load(t)
	routes := func(word string) func() { return func() { n.node.fullTable(t, word) } }
	cpu, began := n.agent.cpu(t), time.Now()
	figure := func(what string) {
		t.Logf("figure: %s: %s of CPU of the agent in %s", what, n.agent.cpu(t)-cpu, time.Since(began).Round(time.Millisecond))
		cpu, began = n.agent.cpu(t), time.Now()
	}
	audited := func() {
		before, err := n.agent.status()
		n.node.must(t, err)
		n.agent.settle(t, "audit", func(s agent.Status) bool { return s.Audits >= before.Audits+2 })
	}
	audited()
	figure("two audits with few routes")
	n.during(t, "routes are added", routes("add"))
	figure("routes are added")
	n.during(t, "zebra starts", func() {
		n.root.sh(t, "install -d -o frr -g frr /run/frr; touch /etc/frr/zebra.conf")
		n.root.daemon(t, program, "-A", "127.0.0.1", "--log", "stdout")
		n.root.ready(t, "zebra to read the routes", "vtysh -c 'show ip route summary' | grep -q '^kernel *983'")
	})
	figure("zebra reads them")
	t.Logf("figure: zebra prints\n%s", n.root.sh(t, "vtysh -c 'show ip route summary'"))
	audited()
	figure("two audits with all routes")
	took, err := n.agent.stop(t)
	n.node.must(t, err)
	began = time.Now()
	n.agent.start(t, "--ipvs-sync-period", "2s")
	t.Logf("figure: with all routes the agent ends in %s and starts in %s", took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	n.answers(t)
	cpu, began = n.agent.cpu(t), time.Now()
	n.during(t, "routes are deleted", routes("del"))
	figure("routes are deleted")
	n.well(t)
}

// fullTable adds or deletes the routes.
func (n *node) fullTable(t *testing.T, word string) {
	t.Helper()
	for part := range fullTable >> 13 {
		var b strings.Builder
		for i := range 1 << 13 {
			i += part << 13
			fmt.Fprintf(&b, "route %s %d.%d.%d.0/24 via %s dev fab0 proto static\n", word, 20+i>>16, i>>8&255, i&255, otherAddr.v4)
		}
		_, err := n.feed(b.String(), "ip", "-batch", "-")
		n.must(t, err)
	}
}
