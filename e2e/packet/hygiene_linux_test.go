package packet

import (
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// detourPort is where a Service whose policies are both Local has the virtual server for the clients of its node: its port with the
// highest bit turned over.
const detourPort = 80 ^ 1<<15

// TestVIPHygiene checks that a bound address answers only on the ports of its Services. A host
// keeps the other ports of its own address if a Service names that address (internal/DECISIONS.md,
// Service address hygiene).
func TestVIPHygiene(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	w.remote1.serve(t, 8080)
	daemon := &pod{name: "daemon"}
	serve(t, w.node.space, backend.Config{Name: daemon.name, TCP: ":22", UDP: ":22"})
	otherDaemon := &pod{name: "other-daemon"}
	serve(t, w.remote1.space, backend.Config{Name: otherDaemon.name, TCP: ":22", UDP: ":22"})

	web, here, there, detour := numberedService(1), numberedService(2), numberedService(3), numberedService(4)
	detour.backends, detour.internalLocal, detour.externalLocal = endpoints(w.pod1, w.remote1), true, true
	web.backends = endpoints(w.pod1, w.remote1)
	here.external, here.backends = fabAddr, endpoints(w.pod1)
	there.external, there.backends = otherAddr, endpoints(w.pod1)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, web, here, there, detour)
	n.start(t)

	var questions []*question
	for _, c := range []*pod{w.pod2, w.outside, w.host()} {
		undialled := refused
		if c.name == "host" {
			undialled = dropped // mangle cannot refuse, and the filter table comes too late
		}
		for kind, vip := range map[string]pair{"cluster IP": web.vip, "external IP": web.external, "load-balancer IP": web.lb} {
			questions = slices.Concat(questions,
				ask("Service by "+kind, c, vip, 80, by(w.pod1, w.remote1)),
				ask("daemon by "+kind, c, vip, 22, refused),
				ask("NodePort by "+kind, c, vip, web.nodePort, refused),
			)
		}
		questions = slices.Concat(questions,
			ask("daemon by the node's address", c, cniAddr, 22, by(daemon)),
			ask("daemon by the node's address that is an external IP", c, fabAddr, 22, by(daemon)),
			ask("Service by the node's address", c, fabAddr, 80, by(w.pod1)),
			// Packets from this node to the external addresses are redirected to it; no other
			// client can use the virtual server.
			ask("detour", c, detour.vip, detourPort, undialled),
			ask("other node, whose address is an external IP", c, otherAddr, 22, by(otherDaemon)),
		)
	}
	if servers := w.node.run(t, "ipvsadm", "-Sn"); !strings.Contains(servers, "-A -t "+hostPort(detour.vip.v4, detourPort)) {
		t.Errorf("no virtual server on port %d of %s:\n%s", detourPort, detour.vip.v4, servers)
	}
	put(t, []any{"what", "client"}, questions)
	w.pings(t, web.vip, web.external, web.lb, fabAddr, otherAddr)
	bound := w.node.run(t, "ip", "-o", "addr", "show", "dev", "kube-ipvs0")
	for _, addr := range slices.Concat(fabAddr.all(), otherAddr.all()) {
		if strings.Contains(bound, " "+addr+"/") {
			t.Errorf("%s is an address of a node and on kube-ipvs0:\n%s", addr, bound)
		}
	}
	for _, addr := range slices.Concat(web.vip.all(), web.external.all(), web.lb.all()) {
		if !strings.Contains(bound, " "+addr+"/") {
			t.Errorf("%s is not on kube-ipvs0:\n%s", addr, bound)
		}
	}
}

// pings requires an echo from each address to each kind of client.
func (w *world) pings(t *testing.T, addrs ...pair) {
	t.Helper()
	for _, c := range []*pod{w.pod2, w.outside, w.host()} {
		for _, addr := range addrs {
			for _, to := range addr.all() {
				if _, err := c.try("ping", "-n", "-c1", "-W10", to); err != nil {
					t.Errorf("from %s: %v", c.name, err)
				}
			}
		}
	}
}

// TestClusterPortInTheNodePortRange: the rules for NodePorts are about addresses of the node. A Service that uses such a number
// on its cluster IP is none of their business, and its clients keep their address.
func TestClusterPortInTheNodePortRange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	w.pod3.serve(t, 8080)
	const number = 31000
	onCluster := service{name: "on-cluster", vip: pair{"10.96.0.60", "fd00:96::60"}, ports: []port{
		{"tcp", "TCP", number, 8080}, {"udp", "UDP", number, 8080}, {"sctp", "SCTP", number, 8080},
	}, backends: endpoints(w.pod1)}
	onNode := service{name: "on-node", vip: pair{"10.96.0.61", "fd00:96::61"}, ports: webPorts(), nodePort: number, backends: endpoints(w.pod3)}
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, onCluster, onNode)
	n.start(t)
	put(t, []any{"Service", "client"}, slices.Concat(
		ask("on-cluster", w.pod2, onCluster.vip, number, by(w.pod1).seeing(w.pod2.addr), protos...),
		ask("on-cluster", w.outside, onCluster.vip, number, by(w.pod1).seeing(cniAddr), protos...),
		ask("on-node", w.pod2, cniAddr, number, by(w.pod3).seeing(cniAddr), protos...),
		ask("on-node", w.outside, extAddr, number, by(w.pod3).seeing(cniAddr), protos...),
		ask("on-node by its cluster IP", w.pod2, onNode.vip, number, refused),
	))
}
