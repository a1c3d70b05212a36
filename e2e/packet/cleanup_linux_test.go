package packet

import (
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// foreign is what other software keeps in the same kernel: look-alikes of everything that is ours.
const foreign = `
ipvsadm -A -t 172.16.0.1:80 -s wlc
ipvsadm -a -t 172.16.0.1:80 -r 172.16.1.1:80 -m -w 7
ipvsadm -A -u [fd00:172::1]:53 -s rr -p 100
ipvsadm -A -f 99 -s rr
ipset create OTHER hash:ip,port
ipset add OTHER 10.96.0.20,tcp:80
ipset create KUBE-CLUSTER-IP-X hash:ip
iptables-$1 -t nat -N OTHER
iptables-$1 -t nat -A OTHER -m set --match-set OTHER dst,dst -j RETURN
iptables-$1 -t nat -A PREROUTING -j OTHER
iptables-$1 -N KUBE-FIREWALL
iptables-$1 -A INPUT -j KUBE-FIREWALL
iptables-$1 -A FORWARD -s 198.51.100.1/32 -j DROP
ip6tables-$1 -t nat -A POSTROUTING -s 2001:db8:1::/64 -j MASQUERADE
ip6tables-$1 -t mangle -N KUBE-OTHER
ip addr add 10.96.77.77/32 dev nowhere
ip link add kube-ipvs1 type dummy
ip addr add 10.96.88.88/32 dev kube-ipvs1`

// TestForeignThingsStay runs the agent among the belongings of others, and cleans up: everything that was there before has to be there
// after, and nothing else. It does so with both kinds of iptables.
func TestForeignThingsStay(t *testing.T) {
	t.Parallel()
	for _, iptables := range []string{"nft", "legacy"} {
		t.Run(iptables, func(t *testing.T) {
			w := newWorld(t)
			w.node.run(t, "sh", "-ec", foreign, "sh", iptables)
			before := w.node.look(t, iptables)
			sysctls := w.sysctls(t)
			w.node.sysctl(t, "ipv4/ip_forward", "0") // the agent has to turn it on
			web := w.web(t)
			n := newAgent(t, w.node, "--cluster-cidr", clusters, "--iptables-backend", iptables)
			n.write(t, web)
			n.start(t)
			for _, family := range families {
				if got := w.outside.ask(backend.TCP, web.vip.of(family), 80, 3); got.OK != 3 {
					t.Error(text(got))
				}
			}
			contains(t, before, w.node.look(t, iptables))
			w.otherBackendIsEmpty(t, iptables)

			if out, err := n.verb("cleanup"); err == nil || !strings.Contains(err.Error(), "stop the agent first") {
				t.Errorf("cleanup beside a running agent: %v\n%s", err, out)
			}
			if _, err := n.stop(t); err != nil {
				t.Errorf("SIGTERM: %v", err)
			}
			for range 2 {
				out, err := n.verb("cleanup")
				t.Logf("cleanup:\n%s", out)
				if err != nil {
					t.Error(err)
				}
				same(t, "kernel after cleanup", before, w.node.look(t, iptables))
				same(t, "sysctls after cleanup", sysctls, w.sysctls(t))
				w.stillForwards(t)
			}
		})
	}
}

// contains fails for each line that was there before and is not now.
func contains(t *testing.T, before, now view) {
	t.Helper()
	for kind, lines := range before {
		have := map[string]bool{}
		for _, l := range now[kind] {
			have[l] = true
		}
		for _, l := range lines {
			if !have[l] {
				t.Errorf("%s: a line of another program is gone: %s", kind, l)
			}
		}
	}
}

// otherBackendIsEmpty: rules in both kinds of iptables would be applied twice.
func (w *world) otherBackendIsEmpty(t *testing.T, used string) {
	t.Helper()
	other := map[string]string{"nft": "legacy", "legacy": "nft"}[used]
	for _, program := range []string{"iptables-", "ip6tables-"} {
		if out := w.node.run(t, program+other+"-save"); strings.Contains(out, "KUBE-") {
			t.Errorf("agent with %s wrote rules by %s%s:\n%s", used, program, other, out)
		}
	}
}

// sysctls reads those that the agent may change.
func (w *world) sysctls(t *testing.T) view {
	t.Helper()
	out := w.node.run(t, "sysctl", "-e",
		"net.ipv4.vs.conntrack", "net.ipv4.vs.conn_reuse_mode", "net.ipv4.vs.expire_nodest_conn", "net.ipv4.vs.expire_quiescent_template",
		"net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce", "net.ipv4.conf.all.route_localnet")
	return view{"sysctls": strings.Split(strings.TrimSpace(out), "\n")}
}

// stillForwards: pods need forwarding whether kube-ipvs serves the node or not, so cleanup leaves it on.
func (w *world) stillForwards(t *testing.T) {
	t.Helper()
	if got := strings.TrimSpace(w.node.run(t, "sysctl", "-n", "net.ipv4.ip_forward")); got != "1" {
		t.Errorf("net.ipv4.ip_forward is %s after cleanup, want 1", got)
	}
}

// TestBackendsOfIPTables checks the masquerade decision and the filter, the two things rules are for, with each kind.
func TestBackendsOfIPTables(t *testing.T) {
	t.Parallel()
	for _, iptables := range []string{"nft", "legacy"} {
		t.Run(iptables, func(t *testing.T) {
			w := newWorld(t)
			w.pod1.serve(t, 8080)
			w.remote1.serve(t, 8080)
			near := service{name: "near", vip: pair{"10.96.0.10", "fd00:96::10"}, ports: webPorts(), backends: endpoints(w.pod1)}
			far := service{name: "far", vip: pair{"10.96.0.11", "fd00:96::11"}, ports: webPorts(), backends: endpoints(w.remote1)}
			n := newAgent(t, w.node, "--cluster-cidr", clusters, "--iptables-backend", iptables)
			n.write(t, near, far)
			n.start(t)
			w.otherBackendIsEmpty(t, iptables)
			table := newTable("service", "client", "family", "seen")
			for _, family := range families {
				for _, f := range w.flows(near, far, map[string]bool{"pod-2": true, "visitor": true}, family) {
					f.check(t, family, table, backend.TCP)
				}
				if got := w.outside.askFor(silence, backend.TCP, near.vip.of(family), 81, 1); got.Failed[backend.Refused] != 1 {
					t.Errorf("closed port, IPv%d: %s", family, text(got))
				}
			}
			t.Logf("sources\n%s", table)
		})
	}
}
