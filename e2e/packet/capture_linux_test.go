package packet

import (
	"slices"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// TestOtherMachineKeepsItsAddress: a Service claims addresses that another machine has, as a Node or as an endpoint. Clients
// everywhere are served on the port of the Service, and every other port and ping reach the machine, over both families. So it
// stays when the Node is deleted, and after a restart.
func TestOtherMachineKeepsItsAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	node, server := numberedService(1), numberedService(2)
	node.backends, server.backends = endpoints(w.pod1), endpoints(w.pod1)
	machine := w.newBalancer(t, node.lb)
	machine.address(t, "lo", server.lb.v4+"/32", server.lb.v6+"/128")
	w.node.reach(t, "lb0", pair{server.lb.v4 + "/32", server.lb.v6 + "/128"}, pair{"192.168.9.2", "fd00:192:0:9::2"})
	serve(t, machine.space, backend.Config{Name: "machine", TCP: ":22", UDP: ":22"})
	outer := service{name: "outer", vip: numberedService(3).vip, ports: []port{{"ssh", "TCP", 22, 22}}}
	outer.backends = []endpoint{{addr: server.lb.v4}, {addr: server.lb.v6}}

	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	claimed := list(w.node.object(fabAddr), machineNode(node.lb))
	n.writeFile(t, "nodes.yaml", claimed)
	n.write(t, node, server, outer)
	n.start(t)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"both are there", func() {}},
		{"the Node is deleted", func() { n.writeFile(t, "nodes.yaml", list(w.node.object(fabAddr))) }},
		{"the agent starts again", func() {
			if _, err := n.stop(t); err != nil {
				t.Fatalf("stop the agent: %v", err)
			}
			n.start(t)
		}},
	} {
		step.do()
		n.quiet(t)
		var questions []*question
		for _, c := range []*pod{w.pod2, w.visitor, w.outside, w.host()} {
			for name, lb := range map[string]pair{"a Node's": node.lb, "an endpoint's": server.lb} {
				about := step.name + ": " + name + " address"
				questions = slices.Concat(questions, ask(about, c, lb, 80, by(w.pod1)), ask(about+", other port", c, lb, 22, outcome{answers: []string{"machine"}}))
			}
		}
		put(t, []any{"address", "client"}, questions)
		w.pings(t, node.lb, server.lb)
		w.node.waitBound(t, false, node.lb)
		w.node.waitBound(t, false, server.lb)
	}
}

// TestOwnAddressBehindNATIsServed: a Service's load-balancer addresses are ExternalIPs of this very Node, behind NAT and so on no link.
// They are captured by port, for pods, the host and routed clients, over both families; no other node would serve them.
func TestOwnAddressBehindNATIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	web := numberedService(1)
	web.backends = endpoints(w.pod1)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	own := w.node.object(fabAddr)
	status := own["status"].(object)
	status["addresses"] = append(status["addresses"].([]object), object{"type": "ExternalIP", "address": web.lb.v4}, object{"type": "ExternalIP", "address": web.lb.v6})
	n.writeFile(t, "nodes.yaml", list(own))
	n.write(t, web)
	n.start(t)
	var questions []*question
	for _, c := range []*pod{w.pod2, w.visitor, w.outside, w.host()} {
		questions = append(questions, ask("this Node's ExternalIP", c, web.lb, 80, by(w.pod1))...)
	}
	put(t, []any{"address", "client"}, questions)
	w.node.waitBound(t, false, web.lb)
}

// machineNode is the Node of a machine that runs no agent.
func machineNode(addr pair) object { return (&node{name: "machine", index: 7}).object(addr) }

// TestConnectionsSurviveCapture: connections to a bound address go on when it comes to be captured, and when it is bound again.
// Those of the host itself do not: it dials a bound address from that very address.
func TestConnectionsSurviveCapture(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	web := numberedService(1)
	web.backends = endpoints(w.pod1)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, web)
	n.start(t)
	var open []held
	for _, c := range []*pod{w.pod2, w.outside} {
		for _, addr := range web.external.all() {
			open = append(open, c.hold(t, backend.TCP, addr))
		}
	}
	bound := func(want bool) {
		t.Helper()
		w.node.waitBound(t, want, web.external)
		n.quiet(t)
		for _, h := range open {
			h.ask(t)
		}
	}
	bound(true)
	n.writeFile(t, "machine.yaml", list(machineNode(web.external)))
	bound(false)
	n.writeFile(t, "machine.yaml", list(machineNode(web.lb)))
	n.quiet(t)
	if _, err := n.stop(t); err != nil {
		t.Fatalf("stop the agent: %v", err)
	}
	n.start(t, "--external-binding", "bind")
	bound(true)
}
