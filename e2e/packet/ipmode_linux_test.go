package packet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestIPModeFlip: a load balancer that wants to see the traffic itself sets ipMode Proxy, at any time. Then its address is the
// network's business, and with VIP it is ours again.
func TestIPModeFlip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	web := numberedService(1)
	web.backends = endpoints(w.pod1)
	balancer := w.newBalancer(t, web.lb)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	for i, proxied := range []bool{false, true, false} {
		web.proxied = proxied
		n.write(t, web)
		if i == 0 {
			n.start(t)
		}
		w.node.waitBound(t, !proxied, web.lb)
		n.quiet(t)
		want := by(w.pod1)
		if proxied {
			want = by(balancer)
		}
		mode := map[bool]string{false: "VIP", true: "Proxy"}[proxied]
		put(t, []any{"ipMode", "client"}, slices.Concat(
			ask(mode, w.pod2, web.lb, 80, want), ask(mode, w.outside, web.lb, 80, want), ask(mode, w.host(), web.lb, 80, want),
			ask(mode+", cluster IP", w.pod2, web.vip, 80, by(w.pod1)), ask(mode+", NodePort", w.outside, fabAddr, web.nodePort, by(w.pod1)),
		))
		kernel := strings.Join(slices.Concat(w.node.look(t, "nft")["servers"], w.node.look(t, "nft")["sets"]), "\n")
		for _, addr := range web.lb.all() {
			if strings.Contains(kernel, addr) == proxied {
				t.Errorf("ipMode %s: is %s in servers and sets? Want %t:\n%s", mode, addr, !proxied, kernel)
			}
		}
	}
}

// waitBound waits until addresses are on kube-ipvs0, or are not.
func (n *node) waitBound(t *testing.T, want bool, addr pair) {
	t.Helper()
	poll(t, fmt.Sprintf("the addresses to be bound: %t", want), settleTimeout, func() error {
		bound := n.run(t, "ip", "-o", "addr", "show", "dev", "kube-ipvs0")
		for _, a := range addr.all() {
			if strings.Contains(bound, " "+a+"/") != want {
				return fmt.Errorf("kube-ipvs0 has\n%s", bound)
			}
		}
		return nil
	})
}

// newBalancer makes a machine beside the node that has an address, and answers there.
func (w *world) newBalancer(t *testing.T, addr pair) *pod {
	t.Helper()
	m := newMachine(t, w.node, "balancer", "lb0", pair{"192.168.9.1", "fd00:192:0:9::1"}, pair{"192.168.9.2", "fd00:192:0:9::2"})
	m.address(t, "lo", addr.v4+"/32", addr.v6+"/128")
	w.node.reach(t, m.link, pair{addr.v4 + "/32", addr.v6 + "/128"}, m.addr)
	p := &pod{space: m.space, name: "balancer", addr: addr}
	p.serve(t, 80)
	p.name = "balancer:80" // as it answers where the port is not the usual one
	return p
}
