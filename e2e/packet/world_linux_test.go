package packet

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"
)

// Names of the two nodes in manifests.
const (
	thisNode  = "node-a"
	otherNode = "node-b"
)

// Addresses of the node, by the link they are on. What is masqueraded leaves with the address of the link it leaves by.
var (
	cniAddr  = pair{"10.244.0.254", "fd00:10:244::fe"}
	fabAddr  = pair{"192.168.0.1", "fd00:192::1"}
	extAddr  = pair{"203.0.113.1", "2001:db8::1"}
	clusters = "10.244.0.0/16,fd00:10:244::/56"
)

// pair is an address of each family.
type pair struct{ v4, v6 string }

// of returns the address of a family, 4 or 6.
func (p pair) of(family int) string {
	if family == 6 {
		return p.v6
	}
	return p.v4
}

// pod is an endpoint, and a client, in some namespace.
type pod struct {
	*space
	name string
	node string
	addr pair
}

// world is the small cluster of the package comment.
type world struct {
	node             *space
	pod1, pod2       *pod // on the node
	pod3             *pod
	remote1, remote2 *pod // on the other node
	visitor          *pod // on the other node too, serving nothing
	outside          *pod
}

// needKernel skips where packets cannot be tested.
func needKernel(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBE_IPVS_WHERE") == "" {
		t.Skip("KUBE_IPVS_WHERE is not set: this test changes the kernel's network and runs by vmrun only")
	}
	if os.Getenv("KUBE_IPVS_BIN") == "" {
		t.Fatal("KUBE_IPVS_BIN has to be the path of the program under test")
	}
}

// newWorld builds a world for one test. Tests that call t.Parallel may have one each at a time: nothing is shared.
func newWorld(t *testing.T) *world {
	t.Helper()
	needKernel(t)
	w := &world{node: newNode(t)}
	w.pod1 = w.newPod(t, "pod-1", pair{"10.244.0.1", "fd00:10:244::1"})
	w.pod2 = w.newPod(t, "pod-2", pair{"10.244.0.2", "fd00:10:244::2"})
	w.pod3 = w.newPod(t, "pod-3", pair{"10.244.0.3", "fd00:10:244::3"})
	w.addRemote(t)
	w.addOutside(t)
	return w
}

// newNode makes the router with its bridge, and a default route into nothing.
func newNode(t *testing.T) *space {
	t.Helper()
	node := newSpace(t, "node")
	for _, s := range []string{"ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter", "ipv4/conf/all/send_redirects", "ipv4/conf/default/send_redirects"} {
		node.sysctl(t, s, "0")
	}
	// A node tells one peer about one refusal a second; tests are refused more often.
	node.sysctl(t, "ipv4/icmp_ratelimit", "0")
	node.sysctl(t, "ipv6/icmp/ratelimit", "0")
	node.sysctl(t, "ipv4/ip_forward", "1")
	node.sysctl(t, "ipv6/conf/all/forwarding", "1")
	for name, link := range map[string]netlink.Link{"cni0": &netlink.Bridge{}, "nowhere": &netlink.Dummy{}} {
		*link.Attrs() = netlink.NewLinkAttrs()
		link.Attrs().Name = name
		node.must(t, node.links.LinkAdd(link))
	}
	node.address(t, "cni0", cniAddr.v4+"/24", cniAddr.v6+"/64")
	node.address(t, "nowhere", "192.0.2.1/32", "fd00:dead::1/128")
	node.route(t, "nowhere", "0.0.0.0/0", "")
	node.route(t, "nowhere", "::/0", "")
	return node
}

// newPod wires a pod to the bridge. It has no neighbours but the node, so that every packet, also the one to a pod next door,
// is routed and comes by the node's rules on its way back.
func (w *world) newPod(t *testing.T, name string, addr pair) *pod {
	t.Helper()
	s := newSpace(t, name)
	port := "veth-" + name
	wire(t, w.node, port, s, "eth0")
	l := w.node.link(t, port)
	w.node.must(t, w.node.links.LinkSetMaster(l, w.node.link(t, "cni0")))
	// Answers of a pod to itself are turned round inside the bridge and go out by the port they came in, as CNI plugins allow.
	w.node.must(t, w.node.links.LinkSetHairpin(l, true))
	w.node.must(t, w.node.links.LinkSetUp(l))
	s.address(t, "eth0", addr.v4+"/32", addr.v6+"/128")
	s.defaultRoute(t, cniAddr)
	return &pod{space: s, name: name, node: thisNode, addr: addr}
}

// addRemote makes the other node: two pods that serve, in one namespace, and one that asks, in another, for an answer that
// does not leave its namespace would not come by the node.
func (w *world) addRemote(t *testing.T) {
	t.Helper()
	servers := w.newMachine(t, "remote", "fab0", fabAddr, pair{"192.168.0.2", "fd00:192::2"})
	client := w.newMachine(t, "visitor", "fab1", pair{"192.168.1.1", "fd00:192:0:1::1"}, pair{"192.168.1.2", "fd00:192:0:1::2"})
	w.remote1 = w.behind(t, servers, "remote-1", pair{"10.244.1.1", "fd00:10:244:1::1"})
	w.remote2 = w.behind(t, servers, "remote-2", pair{"10.244.1.2", "fd00:10:244:1::2"})
	w.visitor = w.behind(t, client, "visitor", pair{"10.244.1.9", "fd00:10:244:1::9"})
}

// addOutside makes a machine that is no part of the cluster and uses the node as its router.
func (w *world) addOutside(t *testing.T) {
	t.Helper()
	addr := pair{"203.0.113.9", "2001:db8::9"}
	w.outside = &pod{space: w.newMachine(t, "outside", "ext0", extAddr, addr).space, name: "outside", addr: addr}
}

// machine is a neighbour of the node: the node's link to it, and its address there.
type machine struct {
	*space
	link string
	addr pair
}

// newMachine wires a namespace to a link of the node, its router.
func (w *world) newMachine(t *testing.T, name, link string, router, addr pair) machine {
	t.Helper()
	s := newSpace(t, name)
	wire(t, w.node, link, s, "eth0")
	w.node.address(t, link, router.v4+"/24", router.v6+"/64")
	s.address(t, "eth0", addr.v4+"/24", addr.v6+"/64")
	s.defaultRoute(t, router)
	return machine{s, link, addr}
}

// behind makes a pod of the other node that the node reaches through a machine.
func (w *world) behind(t *testing.T, m machine, name string, addr pair) *pod {
	t.Helper()
	w.node.route(t, m.link, addr.v4+"/32", m.addr.v4)
	w.node.route(t, m.link, addr.v6+"/128", m.addr.v6)
	m.address(t, "lo", addr.v4+"/32", addr.v6+"/128")
	return &pod{space: m.space, name: name, node: otherNode, addr: addr}
}

// defaultRoute leads out by eth0, and keeps the way when the router knows a shorter one.
func (s *space) defaultRoute(t *testing.T, via pair) {
	t.Helper()
	s.route(t, "eth0", "0.0.0.0/0", via.v4)
	s.route(t, "eth0", "::/0", via.v6)
	s.sysctl(t, "ipv4/conf/all/accept_redirects", "0")
	s.sysctl(t, "ipv4/conf/eth0/accept_redirects", "0")
	s.sysctl(t, "ipv6/conf/eth0/accept_redirects", "0")
}

// host is the node as a client.
func (w *world) host() *pod { return &pod{space: w.node, name: "host"} }
