package packet

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// damage is an action of another program on the node.
type damage struct {
	name, script string
	event        bool     // the kernel tells, so no audit is needed
	hits         []string // losses of other programs by it, too: see neighbours.remake
}

// lookPause is the time before each read of the whole kernel, which takes CPU time from the agent
// that has to repair it.
const lookPause = 500 * time.Millisecond

// everyTable are all with rules, but for those of the older iptables.
var everyTable = append([]string{"nftables"}, ruleTables...)

// Damages, by what they are to. Each list has a test of its own, so that several guests share them.
var (
	damagedAddresses = []damage{ // and settings
		{name: "IPv4 address deleted", script: "ip addr del 10.96.0.20/32 dev kube-ipvs0", event: true},
		{name: "IPv6 address deleted", script: "ip addr del fd00:96::20/128 dev kube-ipvs0", event: true},
		{name: "all addresses flushed", script: "ip addr flush dev kube-ipvs0", event: true},
		{name: "device deleted", script: "ip link del kube-ipvs0", event: true},
		{name: "device set up, and down again", script: "ip link set kube-ipvs0 up; ip link set kube-ipvs0 down", event: true},
		{name: "a stranger's address on our device", script: "ip addr add 10.96.99.99/32 dev kube-ipvs0"},
		{name: "idle times changed", script: "ipvsadm --set 100 50 70"},
		{name: "sysctls changed back", script: "sysctl -w net.ipv4.vs.conntrack=0 net.ipv4.vs.expire_nodest_conn=0 net.ipv4.ip_forward=0", hits: []string{"forwarding"}},
		{name: "load balancer's address deleted", script: "ip addr del 198.18.3.1/32 dev kube-ipvs0", event: true},
	}
	damagedServers = []damage{
		{name: "virtual server deleted", script: "ipvsadm -D -t 10.96.0.20:80"},
		{name: "IPv6 virtual server deleted", script: "ipvsadm -D -u [fd00:96::20]:80"},
		{name: "destination deleted", script: "ipvsadm -d -t 10.96.0.20:80 -r 10.244.0.1:8080"},
		{name: "destination's weight changed", script: "ipvsadm -e -t 10.96.0.20:80 -r 10.244.0.1:8080 -m -w 0"},
		{name: "destination added", script: "ipvsadm -a -t 10.96.0.20:80 -r 10.244.9.9:8080 -m"},
		{name: "scheduler changed", script: "ipvsadm -E -t 10.96.0.20:80 -s wlc"},
		{name: "virtual server added to our address", script: "ipvsadm -A -t 10.96.0.20:99 -s rr; ipvsadm -a -t 10.96.0.20:99 -r 10.244.9.9:99 -m || true"},
		{name: "old servers restored, one on our address", script: `printf '%s\n' "-A -t 10.96.0.20:99 -s wlc" "-a -t 10.96.0.20:99 -r 10.244.9.9:99 -m -w 1" \
			"-a -t 10.96.0.20:80 -r 10.244.9.9:8080 -m -w 1" | ipvsadm --restore`},
		{name: "every virtual server deleted", script: "ipvsadm -C", hits: []string{"servers"}},
		{name: "virtual server of a NodePort deleted", script: "ipvsadm -D -t 192.168.0.1:30080"},
	}
	damagedSets = []damage{
		{name: "set entry deleted", script: "ipset del KUBE-CLUSTER-IP 10.96.0.20,tcp:80"},
		{name: "set entry added", script: "ipset add KUBE-CLUSTER-IP 10.96.0.99,tcp:80"},
		{name: "all sets flushed", script: "ipset flush", hits: []string{"sets"}},
		{name: "all sets destroyed that let themselves be", script: "for set in $(ipset list -name); do ipset destroy $set 2>/dev/null || true; done", hits: []string{"sets"}},
		{name: "source range deleted", script: "ipset del KUBE-LOAD-BALANCER-SOURCE-CIDR 198.18.3.1,tcp:80,203.0.113.0/24"},
		{name: "source range added", script: "ipset add KUBE-LOAD-BALANCER-SOURCE-CIDR 198.18.3.1,tcp:80,203.0.0.0/16"},
		{name: "node's addresses flushed from their set", script: "ipset flush KUBE-NODE-PORT-IPS"},
	}
	damagedRules = []damage{
		{name: "chain flushed", script: "iptables-nft -t nat -F KUBE-SERVICES"},
		{name: "rule added to a chain", script: "iptables-nft -t nat -I KUBE-SERVICES -j ACCEPT"},
		{name: "jump deleted", script: `iptables-nft -t nat -D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`, event: true},
		{name: "all rules of IPv4 gone", script: "iptables-nft -F; iptables-nft -X; iptables-nft -t nat -F; iptables-nft -t nat -X",
			event: true, hits: []string{"iptables filter", "iptables nat"}},
		{name: "all rules gone", script: `for ip in iptables ip6tables; do for table in filter nat mangle raw; do $ip-nft -t $table -F; $ip-nft -t $table -X; done; done`,
			event: true, hits: ruleTables},
		{name: "a firewall's own rules restored", event: true, script: `for ip in iptables ip6tables; do cat $1/$ip-[fnmr]* | $ip-nft-restore; done`},
		{name: "nftables flushed", script: "nft flush ruleset", event: true, hits: everyTable},
		{name: "a firewall's own nftables loaded", event: true, hits: ruleTables, script: "{ echo flush ruleset; nft list table inet other; nft list table bridge other; } | nft -f -"},
		{name: "set destroyed with every rule that names it", script: `for table in filter nat mangle; do
				iptables-nft -t $table -S | sed -n "/ KUBE-IPVS-IPS /s/^-A/iptables-nft -t $table -D/p" | sh -e
			done; ipset destroy KUBE-IPVS-IPS`},
		{name: "ways of the node's own clients deleted", script: "iptables-nft -t nat -F KUBE-DETOUR-TO; ip6tables-nft -t nat -F KUBE-DETOUR"},
		{name: "filter of the host's own traffic deleted", script: "iptables-nft -t mangle -F KUBE-IPVS-OUT-FILTER"},
	}
)

func TestDamageToAddressesIsRepaired(t *testing.T) { repaired(t, damagedAddresses) }

func TestDamageToServersIsRepaired(t *testing.T) { repaired(t, damagedServers) }

func TestDamageToSetsIsRepaired(t *testing.T) { repaired(t, damagedSets) }

func TestDamageToRulesIsRepaired(t *testing.T) { repaired(t, damagedRules) }

// repaired has another program take away what the agent wrote, among neighbours with objects of every kind, and waits until the
// kernel is as before and traffic flows. Neither the agent nor a manifest is touched, and what neighbours have stays as it was, but for
// what the damage itself took of it.
func repaired(t *testing.T, damages []damage) {
	t.Helper()
	t.Parallel()
	w := newWorld(t)
	near := newNeighbours(t, w)
	foreign := near.all(t)
	web := w.web(t)
	web.lb, web.nodePort, web.externalLocal = pair{"198.18.3.1", "2001:db8:3::1"}, 30080, true
	web.ranges = []string{"203.0.113.0/24", "2001:db8::/64"}
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--ipvs-tcp-timeout", "20m", "--ipvs-tcpfin-timeout", "1m", "--ipvs-udp-timeout", "3m")
	n.write(t, web)
	n.start(t, "--ipvs-sync-period", "1s") // a slow machine's rounds take long, and come less often
	want := near.all(t)
	foreign["settings"] = nil // those are the node's
	contains(t, foreign, want)
	// A connection that began while there were no rules gets no answer for minutes, and so would
	// the next one from its port.
	profile := steady
	profile.New, profile.Long, profile.Timeout, profile.Ports = 5, 0, time.Second, load.Ports{First: 10000, Last: 19999}
	clients := w.burdened(t, web, profile)
	table := newTable("damage", "repaired after", "drifted rows", "requests", "failed")
	for _, tt := range damages {
		t.Run(tt.name, func(t *testing.T) {
			drifted, _ := n.status()
			began, lost := count(clients, asked), count(clients, load.Report.Failures)
			w.node.run(t, "sh", "-ec", tt.script, "sh", near.dir)
			start := time.Now()
			near.remake(t, tt.hits...)
			poll(t, "the kernel to be as before", settleTimeout, func() error {
				time.Sleep(lookPause)
				if diff := cmp.Diff(want, near.all(t)); diff != "" {
					return fmt.Errorf("(-want +got):\n%s", diff)
				}
				return nil
			})
			took := time.Since(start).Round(time.Millisecond)
			s := n.settle(t, "have written everything", func(s agent.Status) bool { return s.Failures == 0 })
			requests, failed := count(clients, asked)-began, count(clients, load.Report.Failures)-lost
			table.row(tt.name, took, s.Drifted-drifted.Drifted, requests, failed)
			if tt.event && s.Drifted != drifted.Drifted {
				t.Logf("an audit came first: it had to repair what an event should have told")
			}
			for _, family := range families {
				all := func(got *backend.Tally) bool { return len(got.Backends) == len(web.backends)/len(families) }
				if got := w.outside.askUntil(patience, backend.TCP, web.vip.of(family), 80, 30, all); got.Failures() > 0 || !all(got) {
					t.Errorf("IPv%d: %s", family, text(got))
				}
			}
			near.connected(t, tt)
		})
	}
	t.Logf("repairs, audit every 1s, %d requests a second\n%s", 3*int(profile.New), table)
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
