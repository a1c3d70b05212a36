package packet

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// damages are what somebody else may do to the node.
var damages = []struct {
	name, script string
	event        bool // the kernel tells, so no audit is needed
}{
	{"IPv4 address deleted", "ip addr del 10.96.0.20/32 dev kube-ipvs0", true},
	{"IPv6 address deleted", "ip addr del fd00:96::20/128 dev kube-ipvs0", true},
	{"device deleted", "ip link del kube-ipvs0", true},
	{"virtual server deleted", "ipvsadm -D -t 10.96.0.20:80", false},
	{"IPv6 virtual server deleted", "ipvsadm -D -u [fd00:96::20]:80", false},
	{"destination deleted", "ipvsadm -d -t 10.96.0.20:80 -r 10.244.0.1:8080", false},
	{"destination's weight changed", "ipvsadm -e -t 10.96.0.20:80 -r 10.244.0.1:8080 -m -w 0", false},
	{"destination added", "ipvsadm -a -t 10.96.0.20:80 -r 10.244.9.9:8080 -m", false},
	{"scheduler changed", "ipvsadm -E -t 10.96.0.20:80 -s wlc", false},
	{"virtual server added to our address", "ipvsadm -A -t 10.96.0.20:99 -s rr; ipvsadm -a -t 10.96.0.20:99 -r 10.244.9.9:99 -m", false},
	{"every virtual server deleted", "ipvsadm -C", false},
	{"set entry deleted", "ipset del KUBE-CLUSTER-IP 10.96.0.20,tcp:80", false},
	{"set entry added", "ipset add KUBE-CLUSTER-IP 10.96.0.99,tcp:80", false},
	{"all sets flushed", "ipset flush", false},
	{"chain flushed", "iptables-nft -t nat -F KUBE-SERVICES", false},
	{"rule added to a chain", "iptables-nft -t nat -I KUBE-SERVICES -j ACCEPT", false},
	{"jump deleted", `iptables-nft -t nat -D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`, false},
	{"all rules of IPv4 gone", "iptables-nft -F; iptables-nft -X; iptables-nft -t nat -F; iptables-nft -t nat -X", false},
	{"nftables flushed", "nft flush ruleset", false},
	{"set destroyed with every rule that names it", `for table in filter nat mangle; do
			iptables-nft -t $table -S | sed -n "/ KUBE-IPVS-IPS /s/^-A/iptables-nft -t $table -D/p" | sh -e
		done; ipset destroy KUBE-IPVS-IPS`, false},
	{"load balancer's address deleted", "ip addr del 198.18.3.1/32 dev kube-ipvs0", true},
	{"virtual server of a NodePort deleted", "ipvsadm -D -t 192.168.0.1:30080", false},
	{"source range deleted", "ipset del KUBE-LOAD-BALANCER-SOURCE-CIDR 198.18.3.1,tcp:80,203.0.113.0/24", false},
	{"source range added", "ipset add KUBE-LOAD-BALANCER-SOURCE-CIDR 198.18.3.1,tcp:80,203.0.0.0/16", false},
	{"node's addresses flushed from their set", "ipset flush KUBE-NODE-PORT-IPS", false},
	{"ways of the node's own clients deleted", "iptables-nft -t nat -F KUBE-DETOUR-TO; ip6tables-nft -t nat -F KUBE-DETOUR", false},
	{"filter of the host's own traffic deleted", "iptables-nft -t mangle -F KUBE-IPVS-OUT-FILTER", false},
}

// TestDamageIsRepaired has somebody else take away what the agent wrote, and waits until the kernel is as before and traffic
// flows. Nobody restarts or edits anything.
func TestDamageIsRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.web(t)
	web.lb, web.nodePort, web.externalLocal = pair{"198.18.3.1", "2001:db8:3::1"}, 30080, true
	web.ranges = []string{"203.0.113.0/24", "2001:db8::/64"}
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, web)
	n.start(t, "--ipvs-sync-period", "2s")
	want := w.node.look(t, "nft")
	table := newTable("damage", "repaired after", "drifted rows")
	for _, tt := range damages {
		t.Run(tt.name, func(t *testing.T) {
			drifted, _ := n.status()
			w.node.shell(t, tt.script)
			start := time.Now()
			poll(t, "the kernel to be as before", settleTimeout, func() error {
				if diff := cmp.Diff(want, w.node.look(t, "nft")); diff != "" {
					return fmt.Errorf("(-want +got):\n%s", diff)
				}
				return nil
			})
			took := time.Since(start).Round(time.Millisecond)
			s := n.settle(t, "have written everything", func(s agent.Status) bool { return s.Failures == 0 })
			table.row(tt.name, took, s.Drifted-drifted.Drifted)
			if tt.event && s.Drifted != drifted.Drifted {
				t.Logf("an audit came first: it had to repair what an event should have told")
			}
			for _, family := range families {
				if got := w.outside.ask(backend.TCP, web.vip.of(family), 80, 3); got.OK != 3 || len(got.Backends) != 3 {
					t.Errorf("IPv%d: %s", family, text(got))
				}
			}
		})
	}
	t.Logf("repairs, audit every 2s\n%s", table)
}

// TestAddressEventsNeedNoAudit: without any audit a lost address or device is back at once.
func TestAddressEventsNeedNoAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.web(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, web)
	n.start(t)
	for _, script := range []string{
		"ip addr del 10.96.0.20/32 dev kube-ipvs0", "ip -6 addr del fd00:96::20/128 dev kube-ipvs0", "ip addr flush dev kube-ipvs0", "ip link del kube-ipvs0",
	} {
		w.node.shell(t, script)
		poll(t, "an answer after "+script, settleTimeout, func() error {
			for _, family := range families {
				if got := w.outside.askFor(silence, backend.TCP, web.vip.of(family), 80, 1); got.OK != 1 {
					return fmt.Errorf("IPv%d: %s", family, text(got))
				}
			}
			return nil
		})
	}
	if s, err := n.status(); err != nil || s.Audits != 0 {
		t.Errorf("%d audits, %v: want none", s.Audits, err)
	}
}
