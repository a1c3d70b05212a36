package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// everyEndpoint are the addresses of all endpoints: one server answers for each. everyService are
// the addresses of all Services. Packets that no proxy translates also reach that server's machine,
// which has no listener there, so that they are refused at once without a time-out.
const (
	everyEndpoint = "10.128.0.0/12"
	everyService  = "10.96.0.0/16"
)

// newCostWorld builds a node that has never seen a proxy, a pod that asks, and one server behind all addresses of endpoints.
func newCostWorld(t *testing.T) *world {
	t.Helper()
	needKernel(t)
	w := &world{node: newSpace(t, "node"), pod: newSpace(t, "pod")}
	farm := newSpace(t, "backends")
	wire(t, w.node, "be0", farm, "eth0")
	wire(t, w.node, "pod0", w.pod, "eth0")
	w.node.shell(t, `cd /proc/sys/net
for f in ipv4/conf/all/rp_filter ipv4/conf/default/rp_filter ipv4/conf/be0/rp_filter ipv4/conf/pod0/rp_filter; do echo 0 >$f; done
echo 0 >ipv4/icmp_ratelimit
echo 1 >ipv4/ip_forward`)
	w.node.ip(t, "link set lo up", "link set be0 up", "link set pod0 up", "addr add "+nodeAddr+"/24 dev be0",
		"addr add 10.244.0.254/32 dev pod0", "route add 10.244.0.9/32 dev pod0", "route add "+everyEndpoint+" via "+otherNodeAddr,
		"route add "+everyService+" via "+otherNodeAddr)
	w.pod.ip(t, slices.Concat(leaf(), []string{"addr add 10.244.0.9/32 dev eth0", "route add 10.244.0.254/32 dev eth0",
		"route add default via 10.244.0.254 dev eth0 onlink"})...)
	farm.ip(t, slices.Concat(leaf(), []string{"addr add " + otherNodeAddr + "/24 dev eth0", "route add local " + everyEndpoint + " dev lo", "route add local " + everyService + " dev lo",
		"route add default via " + nodeAddr})...)
	serve(t, farm, backend.Config{Name: "anyone", TCP: netip.AddrPortFrom(netip.IPv4Unspecified(), backendPort).String()})
	return w
}

// errOthers means that all who answered are those from before.
var errOthers = errors.New("others answer")

// askPause is between two requests for an answer that is waited for: the CPUs are the agent's. askLimit is for one: a packet that is
// lost while rules change comes again after a second, which would be taken for the agent's.
const (
	askPause = time.Millisecond
	askLimit = 250 * time.Millisecond
)

// until asks over new connections until the right backend answers, any if want is not valid, and returns when that was.
func (w *world) until(to netip.AddrPort, want netip.Addr, limit time.Duration) (at time.Time, err error) {
	deadline := time.Now().Add(limit)
	err = w.pod.do(func() error {
		for {
			reply, err := ask(askLimit, to)
			if at = time.Now(); err == nil {
				if !want.IsValid() || reply.Local.Addr() == want {
					return nil
				}
				err = errOthers
			}
			if at.After(deadline) {
				return fmt.Errorf("ask %s for %s: %w", to, limit, err)
			}
			time.Sleep(askPause)
		}
	})
	return at, err
}
