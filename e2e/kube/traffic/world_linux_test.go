package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// Names of the two nodes in the API; the agent runs on the first, the second has nothing but pods.
const (
	thisNode  = "node-a"
	otherNode = "node-b"
)

// nodeAddr is the node's InternalIP.
const nodeAddr = "192.168.0.1"

// otherNodeAddr is that of the other node, where all backends are.
const otherNodeAddr = "192.168.0.2"

// clusterCIDR are the ranges of all pods.
const clusterCIDR = "10.244.0.0/16,fd00:10:244::/56"

// server is one backend: an address of each family, and the node that it is said to be on. It answers on port 8080.
type server struct {
	name, node string
	v4, v6     string
}

// backends are all there are.
var backends = []server{
	{"backend-1", thisNode, "10.244.0.1", "fd00:10:244::1"},
	{"backend-2", thisNode, "10.244.0.2", "fd00:10:244::2"},
	{"backend-3", otherNode, "10.244.1.1", "fd00:10:244:1::1"},
	{"backend-4", otherNode, "10.244.1.2", "fd00:10:244:1::2"},
}

// backendPort is where each backend answers.
const backendPort = 8080

// world is the node, a pod that asks, and a machine with all backends.
type world struct {
	node, pod, farm *space
}

// needKernel skips where packets cannot be tested.
func needKernel(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBE_IPVS_WHERE") == "" {
		t.Skip("KUBE_IPVS_WHERE is not set: this test changes the kernel's network and is run by e2e/test-kube.sh only")
	}
	if os.Getenv("KUBE_IPVS_BIN") == "" {
		t.Fatal("KUBE_IPVS_BIN has to be the path of the program under test")
	}
}

// newWorld builds a world for one test. Tests that call t.Parallel have one each.
func newWorld(t *testing.T) *world {
	t.Helper()
	needKernel(t)
	w := &world{node: newSpace(t, "node"), pod: newSpace(t, "pod")}
	farm := newSpace(t, "backends")
	w.farm = farm
	wire(t, w.node, "be0", farm, "eth0")
	wire(t, w.node, "pod0", w.pod, "eth0")
	w.routeNode(t)
	w.pod.ip(t, slices.Concat(leaf(), []string{"addr add 10.244.0.9/32 dev eth0", "addr add fd00:10:244::9/128 dev eth0 nodad"},
		gateway("10.244.0.254", "fd00:10:244::fe"))...)
	farm.ip(t, slices.Concat(leaf(), []string{"addr add " + otherNodeAddr + "/24 dev eth0", "addr add fd00:192::2/64 dev eth0 nodad"},
		farmAddresses(), gateway(nodeAddr, "fd00:192::1"))...)
	for _, b := range backends {
		for _, addr := range []string{b.v4, b.v6} {
			at := netip.AddrPortFrom(netip.MustParseAddr(addr), backendPort).String()
			serve(t, farm, backend.Config{Name: b.name, TCP: at, HTTP: at, UDP: at})
		}
	}
	return w
}

// leaf brings up a namespace that has one link. lo first: without it the kernel refuses destinations with EINVAL.
func leaf() []string { return []string{"link set lo up", "link set eth0 up"} }

func gateway(v4, v6 string) []string {
	return []string{"route add " + v4 + "/32 dev eth0", "route replace default via " + v4 + " dev eth0 onlink", "route replace default via " + v6 + " dev eth0 onlink"}
}

func farmAddresses() []string {
	var out []string
	for _, b := range backends {
		out = append(out, "addr add "+b.v4+"/32 dev lo", "addr add "+b.v6+"/128 dev lo nodad")
	}
	return out
}

// routeNode makes the router: pods behind two links, a default route into nothing.
func (w *world) routeNode(t *testing.T) {
	t.Helper()
	w.node.shell(t, `cd /proc/sys/net
for f in ipv4/conf/all/rp_filter ipv4/conf/default/rp_filter ipv4/conf/be0/rp_filter ipv4/conf/pod0/rp_filter; do echo 0 >$f; done
echo 0 >ipv4/icmp_ratelimit
echo 1 >ipv4/ip_forward
echo 1 >ipv6/conf/all/forwarding`)
	commands := []string{
		"link set lo up", "link add nowhere type dummy", "link set nowhere up", "link set be0 up", "link set pod0 up",
		"addr add " + nodeAddr + "/24 dev be0", "addr add fd00:192::1/64 dev be0 nodad",
		"addr add 10.244.0.254/32 dev pod0", "addr add fd00:10:244::fe/128 dev pod0 nodad",
		"route add 10.244.0.9/32 dev pod0", "route add fd00:10:244::9/128 dev pod0",
		"route add default dev nowhere", "route add fd00::/16 dev nowhere",
	}
	for _, b := range backends {
		commands = append(commands, "route add "+b.v4+"/32 via "+otherNodeAddr+" dev be0", "route add "+b.v6+"/128 via fd00:192::2 dev be0")
	}
	w.node.ip(t, commands...)
}

func serve(t *testing.T, s *space, c backend.Config) {
	t.Helper()
	var server *backend.Server
	err := s.do(func() (err error) {
		server, err = backend.Listen(c)
		return err
	})
	if err != nil {
		t.Fatalf("serve in %s: %v", s.name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("backend %s: %v", c.Name, err)
		}
	})
}

// kernel prints everything that the agent may have written: sorted, because history decides the order, without counters.
func (w *world) kernel(t *testing.T) []string {
	t.Helper()
	out := w.node.shell(t, `ipvsadm -Sn | sed 's/^/ipvs /'
ipset save | sed -E 's/^/ipset /; s/ (bucketsize|initval) [^ ]+//g'
for f in 4 6; do p=ip$f; [ $f = 6 ] || p=ip; for t in nat filter mangle; do ${p}tables-nft-save -t $t 2>/dev/null | sed -E "/^#/d; s/ \[[0-9:]+\]//; s/^/$p $t /"; done; done
ip -o addr show dev kube-ipvs0 | awk '{ print "address " $4 }'`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	return lines
}

// same fails the test where two prints of the kernel differ.
func same(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// rows counts the lines of the kernel that begin so.
func rows(lines []string, prefix string) int {
	n := 0
	for _, l := range lines {
		if strings.HasPrefix(l, prefix) {
			n++
		}
	}
	return n
}

// poll tries until there is no error.
func poll(t *testing.T, what string, limit time.Duration, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s: %v", limit, what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// figure logs what was measured, aligned.
func figure(t *testing.T, what string, value any) {
	t.Helper()
	if d, ok := value.(time.Duration); ok {
		value = d.Round(time.Millisecond)
	}
	fmt.Printf("figure: %-22s %-44s %v\n", strings.TrimPrefix(t.Name(), "Test"), what, value)
}
