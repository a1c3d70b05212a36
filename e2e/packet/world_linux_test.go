package packet

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the node, by the link they are on. A masqueraded packet has the address of its
// outgoing link as source.
var (
	cniAddr  = bridgeAddr(0)
	fabAddr  = pair{"192.168.0.1", "fd00:192::1"}
	extAddr  = pair{"203.0.113.1", "2001:db8::1"}
	clusters = "10.244.0.0/16,fd00:10:244::/56"
)

// otherAddr is the other node's address on the link between them.
var otherAddr = pair{"192.168.0.2", "fd00:192::2"}

// podAddr is the address of a pod, by the number of its node and its own.
func podAddr(node, number int) pair {
	v6 := netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%d::%x", node, number))
	return pair{fmt.Sprintf("10.244.%d.%d", node, number), v6.String()} // as the kernel prints it, and a backend
}

// podRange is the range of a node's pods, in each family.
func podRange(node int) pair {
	return pair{fmt.Sprintf("10.244.%d.0/24", node), fmt.Sprintf("fd00:10:244:%d::/64", node)}
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
	node             *node
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

// needIPVS skips where the kernel cannot carry Services in ipvs mode.
func needIPVS(t *testing.T) {
	t.Helper()
	needKernel(t)
	if !kernelHasIPVS() {
		t.Skip("this kernel has no IPVS: the test runs in the VM")
	}
}

// kernelHasIPVS asks the kernel; the program that started the tests has loaded the modules.
var kernelHasIPVS = sync.OnceValue(func() bool {
	_, err := netlink.GenlFamilyGet("IPVS")
	return err == nil
})

// kernelHasSCTP reports whether sockets of SCTP are available.
var kernelHasSCTP = sync.OnceValue(func() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
})

// newWorld builds a world for one test of ipvs mode. Tests that call t.Parallel may have one each at a time: nothing is shared.
func newWorld(t *testing.T) *world {
	t.Helper()
	needIPVS(t)
	return buildWorld(t)
}

// buildWorld is newWorld for a test that any kernel can run.
func buildWorld(t *testing.T) *world {
	t.Helper()
	needKernel(t)
	w := &world{node: newNode(t, thisNode, 0)}
	w.pod1 = w.node.newPod(t, "pod-1", 1)
	w.pod2 = w.node.newPod(t, "pod-2", 2)
	w.pod3 = w.node.newPod(t, "pod-3", 3)
	w.addRemote(t)
	w.outside = newOutside(t, w.node)
	return w
}

// addRemote creates the other node: two serving pods in one namespace, and one client in another,
// because an answer inside one namespace would not pass the node.
func (w *world) addRemote(t *testing.T) {
	t.Helper()
	servers := newMachine(t, w.node, "remote", "fab0", fabAddr, otherAddr)
	client := newMachine(t, w.node, "visitor", "fab1", pair{"192.168.1.1", "fd00:192:0:1::1"}, pair{"192.168.1.2", "fd00:192:0:1::2"})
	w.remote1 = servers.pod(t, "remote-1", 1)
	w.remote2 = servers.pod(t, "remote-2", 2)
	w.visitor = client.pod(t, "visitor", 9)
}

// newOutside makes a machine that is no part of the cluster and uses the node as its router.
func newOutside(t *testing.T, n *node) *pod {
	t.Helper()
	addr := pair{"203.0.113.9", "2001:db8::9"}
	return &pod{space: newMachine(t, n, "outside", "ext0", extAddr, addr).space, name: "outside", addr: addr}
}

// machine is a neighbour of a node that has nothing but this router: the node's link to it, and its address there.
type machine struct {
	*space
	router *node
	link   string
	addr   pair
}

// newMachine wires a namespace to a link of the node, its router.
func newMachine(t *testing.T, n *node, name, link string, router, addr pair) machine {
	t.Helper()
	s := newSpace(t, name)
	n.neighbour(t, s, link, "eth0", router, addr)
	s.defaultRoute(t, router)
	return machine{s, n, link, addr}
}

// pod makes a pod of the other node that the router reaches through the machine.
func (m machine) pod(t *testing.T, name string, number int) *pod {
	t.Helper()
	addr := podAddr(1, number)
	m.router.reach(t, m.link, pair{addr.v4 + "/32", addr.v6 + "/128"}, m.addr)
	m.address(t, "lo", addr.v4+"/32", addr.v6+"/128")
	return &pod{space: m.space, name: name, node: otherNode, addr: addr}
}

// host is the node as a client.
func (w *world) host() *pod { return w.node.host() }

// nodes are this node and the other one, as the control plane describes them.
func (w *world) nodes() []byte {
	return list(w.node.object(fabAddr), (&node{name: otherNode, index: 1}).object(otherAddr))
}
