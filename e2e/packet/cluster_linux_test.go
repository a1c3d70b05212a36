package packet

import "testing"

// cluster is two nodes, each with a kube-ipvs of its own that reads the same manifests. The outside has node-a as its router,
// whatever it asks for, and the nodes route to each other's pods.
//
//	outside ── ext0 node-a fab0 ── fab0 node-b
//	                 cni0                cni0
//	            web-a, asker-a      web-b, asker-b
type cluster struct {
	a, b           *node
	webA, webB     *pod // serve
	askerA, askerB *pod // only ask
	outside        *pod
	agentA, agentB *proxy
}

// newCluster builds both nodes for a test of ipvs mode. Their agents do not run yet.
func newCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	needIPVS(t)
	return buildCluster(t, flags...)
}

// buildCluster is newCluster for a test that any kernel can run.
func buildCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	needKernel(t)
	c := &cluster{a: newNode(t, thisNode, 0), b: newNode(t, otherNode, 1)}
	c.a.neighbour(t, c.b.space, "fab0", "fab0", fabAddr, otherAddr)
	c.b.own = append(c.b.own, otherAddr)
	c.a.reach(t, "fab0", podRange(1), otherAddr)
	c.b.reach(t, "fab0", podRange(0), fabAddr)
	c.b.reach(t, "fab0", pair{"203.0.113.0/24", "2001:db8::/64"}, fabAddr)
	c.webA, c.askerA = c.a.newPod(t, "web-a", 1), c.a.newPod(t, "asker-a", 2)
	c.webB, c.askerB = c.b.newPod(t, "web-b", 1), c.b.newPod(t, "asker-b", 2)
	c.outside = newOutside(t, c.a)
	c.agentA, c.agentB = newAgent(t, c.a, flags...), newAgent(t, c.b, flags...)
	return c
}

// start writes the same manifests for both agents and runs them.
func (c *cluster) start(t *testing.T, services ...service) {
	t.Helper()
	for _, n := range []*proxy{c.agentA, c.agentB} {
		n.writeFile(t, "nodes.yaml", list(c.a.object(fabAddr), c.b.object(otherAddr)))
		n.write(t, services...)
		n.start(t)
	}
}
