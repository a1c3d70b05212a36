package packet

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Names of the two nodes in manifests.
const (
	thisNode  = "node-a"
	otherNode = "node-b"
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

// all returns the addresses that there are.
func (p pair) all() []string {
	var out []string
	for _, family := range families {
		if addr := p.of(family); addr != "" {
			out = append(out, addr)
		}
	}
	return out
}

// node is the namespace of a node: it forwards, pods hang on its bridge, and what it has no route for is swallowed.
type node struct {
	*space
	name  string // in manifests
	index int    // pods have 10.244.index.0/24 and fd00:10:244:index::/64
	own   []pair // its addresses, by which it talks to others, the bridge's first

	annotations annotations
}

// nowhereAddr is on the link that swallows packets.
var nowhereAddr = pair{"192.0.2.1", "fd00:dead::1"}

// addresses are all that the node has. NodePorts answer on them.
func (n *node) addresses() []string {
	out := nowhereAddr.all()
	for _, p := range n.own {
		out = append(out, p.all()...)
	}
	return out
}

// The bridge of a node has the last addresses of its range.
func bridgeAddr(index int) pair { return podAddr(index, 254) }

// newNode makes the router with its bridge, and a default route into nothing.
func newNode(t *testing.T, name string, index int) *node {
	t.Helper()
	n := &node{space: newSpace(t, name), name: name, index: index}
	for _, s := range []string{"ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter", "ipv4/conf/all/send_redirects", "ipv4/conf/default/send_redirects"} {
		n.sysctl(t, s, "0")
	}
	// A node tells one peer about one refusal a second; tests are refused more often.
	n.sysctl(t, "ipv4/icmp_ratelimit", "0")
	n.sysctl(t, "ipv6/icmp/ratelimit", "0")
	n.sysctl(t, "ipv4/ip_forward", "1")
	n.sysctl(t, "ipv6/conf/all/forwarding", "1")
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	bridge.Name = "cni0"
	n.must(t, n.links.LinkAdd(bridge))
	n.addNowhere(t)
	n.owns(t, "cni0", bridgeAddr(index))
	n.address(t, "nowhere", nowhereAddr.v4+"/32", nowhereAddr.v6+"/128")
	n.route(t, "nowhere", "0.0.0.0/0", "")
	n.route(t, "nowhere", "::/0", "")
	return n
}

// addNowhere makes the link that swallows packets. On a kernel without dummy links it is a veth
// link to an empty namespace, with the link address of the sender as destination, so that packets
// are discarded.
func (n *node) addNowhere(t *testing.T) {
	t.Helper()
	dummy := &netlink.Dummy{LinkAttrs: netlink.NewLinkAttrs()}
	dummy.Name = "nowhere"
	err := n.links.LinkAdd(dummy)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		n.must(t, err)
		return
	}
	void := newSpace(t, "void")
	wire(t, n.space, "nowhere", void, "eth0")
	n.must(t, n.links.LinkSetARPOff(n.link(t, "nowhere")))
	void.must(t, void.links.LinkSetUp(void.link(t, "eth0")))
}

// owns gives a link of the node an address of each family.
func (n *node) owns(t *testing.T, link string, addr pair) {
	t.Helper()
	n.address(t, link, addr.v4+"/24", addr.v6+"/64")
	n.own = append(n.own, addr)
}

// newPod wires a pod to the bridge. The node is its only neighbour. So every packet is routed, even
// one to a pod on the same bridge, and answers pass the rules of the node.
func (n *node) newPod(t *testing.T, name string, number int) *pod {
	t.Helper()
	s := newSpace(t, name)
	port := "veth-" + name
	wire(t, n.space, port, s, "eth0")
	l := n.link(t, port)
	n.must(t, n.links.LinkSetMaster(l, n.link(t, "cni0")))
	// Answers of a pod to itself are turned round inside the bridge and go out by the port they came in, as CNI plugins allow.
	n.must(t, n.links.LinkSetHairpin(l, true))
	n.must(t, n.links.LinkSetUp(l))
	addr := podAddr(n.index, number)
	s.address(t, "eth0", addr.v4+"/32", addr.v6+"/128")
	s.defaultRoute(t, bridgeAddr(n.index))
	return &pod{space: s, name: name, node: n.name, addr: addr}
}

// neighbour wires another namespace to a link of the node; both have addresses there.
func (n *node) neighbour(t *testing.T, s *space, link, theirs string, ours, addr pair) {
	t.Helper()
	wire(t, n.space, link, s, theirs)
	n.owns(t, link, ours)
	s.address(t, theirs, addr.v4+"/24", addr.v6+"/64")
}

// reach sends a range of each family through a neighbour.
func (n *node) reach(t *testing.T, link string, to, via pair) {
	t.Helper()
	n.route(t, link, to.v4, via.v4)
	n.route(t, link, to.v6, via.v6)
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
func (n *node) host() *pod { return &pod{space: n.space, name: "host", node: n.name} }
