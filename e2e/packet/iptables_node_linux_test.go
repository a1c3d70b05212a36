package packet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// loopback is where a node reaches itself.
var loopback = pair{v4: "127.0.0.1"}

// besieged sends what is for 127.0.0.1 to the node, and takes what comes from there: no honest neighbour does.
const besieged = `
ip addr del 127.0.0.1/8 dev lo
ip route add 127.0.0.0/8 via %s dev eth0 onlink
sysctl -qw net.ipv4.conf.all.route_localnet=1`

// TestIPTablesLocalhostNodePorts: with the setting, the host reaches NodePorts at 127.0.0.1. No
// other machine reaches anything there, although the kernel then routes loopback addresses.
func TestIPTablesLocalhostNodePorts(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := iptablesWorld(t)
		w.pod1.serve(t, 8080)
		w.remote1.serve(t, 8080)
		daemon := &pod{name: "daemon"}
		serve(t, w.node.space, backend.Config{Name: daemon.name, TCP: "127.0.0.1:2222", UDP: "127.0.0.1:2222"})
		spread, local := numberedService(1), numberedService(2)
		spread.backends, local.backends, local.externalLocal = endpoints(w.pod1, w.remote1), endpoints(w.pod1, w.remote1), true
		n := newAgent(t, w.node, inIPTables(kind, "--detect-local-mode", "NodeCIDR")...)
		n.writeFile(t, "nodes.yaml", w.nodes())
		n.write(t, spread, local)
		columns := []any{"127.0.0.1", "client"}
		n.start(t)
		put(t, columns, slices.Concat(ask("off", w.host(), loopback, spread.nodePort, refused), ask("daemon", w.host(), loopback, 2222, by(daemon))))
		if _, err := n.stop(t); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}

		n.start(t, "--iptables-localhost-nodeports")
		w.outside.shell(t, fmt.Sprintf(besieged, extAddr.v4))
		put(t, columns, slices.Concat(
			ask("on", w.host(), loopback, spread.nodePort, by(w.pod1, w.remote1).seeing(w.node.own...)),
			ask("on, policy Local", w.host(), loopback, local.nodePort, by(w.pod1, w.remote1).seeing(w.node.own...)),
			ask("on, by the node's address", w.host(), fabAddr, spread.nodePort, by(w.pod1, w.remote1)),
			ask("on, from outside", w.outside, extAddr, spread.nodePort, by(w.pod1, w.remote1)),
			ask("neighbour, NodePort", w.outside, loopback, spread.nodePort, dropped), ask("neighbour, policy Local", w.outside, loopback, local.nodePort, dropped),
			ask("neighbour, daemon", w.outside, loopback, 2222, dropped), ask("daemon", w.host(), loopback, 2222, by(daemon)),
		))
		// Packets of the neighbour do arrive, and only one rule keeps them out.
		w.node.run(t, "iptables-"+kind, "-I", "INPUT", "-p", "tcp", "--dport", "2222", "-j", "ACCEPT")
		put(t, columns, ask("neighbour, daemon, let in", w.outside, loopback, 2222, by(daemon), backend.TCP))
	})
}

// TestIPTablesNodePortAddresses: NodePorts answer on the addresses that were chosen, and nowhere else.
func TestIPTablesNodePortAddresses(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := iptablesWorld(t)
		w.pod1.serve(t, 8080)
		web := numberedService(1)
		web.backends = endpoints(w.pod1)
		n := newAgent(t, w.node, inIPTables(kind, "--detect-local-mode", "NodeCIDR", "--nodeport-addresses", "primary")...)
		n.writeFile(t, "nodes.yaml", w.nodes())
		n.write(t, web)
		n.start(t)
		var questions []*question
		for _, c := range []*pod{w.pod2, w.outside, w.host()} {
			questions = slices.Concat(questions,
				ask("primary", c, fabAddr, web.nodePort, by(w.pod1)), ask("another", c, extAddr, web.nodePort, refused), ask("another", c, cniAddr, web.nodePort, refused))
		}
		put(t, []any{"address", "client"}, questions)
	})
}

// foreignRules are what other software keeps in the same kernel: look-alikes of what is ours.
const foreignRules = `
ipset create OTHER hash:ip,port
ipset add OTHER 10.96.0.20,tcp:80
iptables-$1 -t nat -N OTHER
iptables-$1 -t nat -A OTHER -m set --match-set OTHER dst,dst -j RETURN
iptables-$1 -t nat -A PREROUTING -j OTHER
iptables-$1 -t nat -N KUBE-SVCOTHER
iptables-$1 -t nat -N KUBE-MARK-DROP
iptables-$1 -t mangle -N KUBE-KUBELET-CANARY
iptables-$1 -N KUBE-FIREWALL
iptables-$1 -A INPUT -j KUBE-FIREWALL
iptables-$1 -A FORWARD -s 198.51.100.1/32 -j DROP
ip6tables-$1 -t nat -A POSTROUTING -s 2001:db8:1::/64 -j MASQUERADE
ip6tables-$1 -t mangle -N KUBE-OTHER
ip addr add 10.96.77.77/32 dev nowhere`

// TestIPTablesForeignThingsStay runs the agent among the belongings of others, and cleans up: everything that was there before has to be there
// after, and nothing else.
func TestIPTablesForeignThingsStay(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := iptablesWorld(t)
		w.node.run(t, "sh", "-ec", foreignRules, "sh", kind)
		look := func() view { return w.node.show(t, "echo ==sets; ipset save"+rulesScript, kind) }
		before, sysctls := look(), w.sysctls(t)
		w.node.sysctl(t, "ipv4/ip_forward", "0") // the agent has to turn it on
		web := w.web(t)
		web.lb, web.nodePort, web.ranges, web.affinity = pair{"198.18.3.1", "2001:db8:3::1"}, 30080, only(w.outside.addr), 600
		n := newAgent(t, w.node, inIPTables(kind, "--cluster-cidr", clusters, "--iptables-localhost-nodeports")...)
		n.write(t, web)
		n.start(t)
		put(t, []any{"Service", "client"}, ask("web", w.outside, web.lb, 80, by(w.pod1, w.pod2, w.remote1).any()))
		contains(t, before, look())
		w.otherBackendIsEmpty(t, kind)
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
			same(t, "kernel after cleanup", before, look())
			same(t, "sysctls after cleanup", sysctls, w.sysctls(t))
			w.stillForwards(t)
		}
	})
}

// TestIPTablesOtherBackend: an agent uses another iptables backend than the one before it. It
// removes the rules of the old backend when its own are in place, without a failed connection, and
// again if they come back; cleanup removes both.
func TestIPTablesOtherBackend(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		other := map[string]string{"nft": "legacy", "legacy": "nft"}[kind]
		w := iptablesWorld(t)
		web := w.web(t)
		first := newAgent(t, w.node, inIPTables(other, "--cluster-cidr", clusters)...)
		first.write(t, web)
		first.start(t)
		if _, err := first.stop(t); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
		stray := func() string {
			return w.node.run(t, "iptables-"+other+"-save") + w.node.run(t, "ip6tables-"+other+"-save")
		}
		if !strings.Contains(stray(), "KUBE-SERVICES") {
			t.Fatal("the first agent left no rules")
		}
		asked := func() {
			put(t, []any{"Service", "client"}, ask("web", w.pod1, web.vip, 80, by(w.pod1, w.pod2, w.remote1).any()))
		}
		second := newAgent(t, w.node, inIPTables(kind, "--cluster-cidr", clusters, "--iptables-sync-period", "1s")...)
		second.write(t, web)
		second.start(t)
		gone := func() error {
			if out := stray(); strings.Contains(out, "KUBE-") {
				return fmt.Errorf("rules of %s:\n%s", other, out)
			}
			return nil
		}
		poll(t, "rules of the other kind to be removed", settleTimeout, gone)
		asked()
		w.node.run(t, "iptables-"+other, "-t", "nat", "-N", "KUBE-SERVICES")
		poll(t, "a chain of the other kind to be removed", settleTimeout, gone)
		if _, err := second.stop(t); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
		w.node.run(t, "iptables-"+other, "-t", "nat", "-N", "KUBE-SERVICES")
		if out, err := second.verb("cleanup"); err != nil {
			t.Errorf("cleanup: %v\n%s", err, out)
		}
		w.otherBackendIsEmpty(t, kind)
		w.otherBackendIsEmpty(t, other)
	})
}

// TestIPTablesWithoutAnything: on a kernel without IPVS, an agent that finds no tool of iptables ends, and names both with what to
// install.
func TestIPTablesWithoutAnything(t *testing.T) {
	needKernel(t)
	if kernelHasIPVS() {
		t.Skip("this kernel has IPVS, so ipvs mode runs with rules in nftables")
	}
	t.Parallel()
	n := newAgent(t, iptablesWorld(t).node)
	_, err := n.try("env", append([]string{"PATH=/nonexistent", program()}, n.flags...)...)
	if err == nil {
		t.Fatal("an agent that can run no mode ends without an error")
	}
	for _, part := range []string{
		"exit status 1", "no mode can run on this node: it lacks IPVS, and it lacks iptables\n", "  ipvs mode: ", "  remedy: ip_vs: ",
		"  iptables mode: no usable iptables family: ", "  remedy: install iptables: the package iptables on Debian and Ubuntu, iptables-nft on RHEL and Fedora",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want %q", err, part)
		}
	}
}

// TestIPTablesWithoutIPVS: an agent that is asked for ipvs mode carries Services all the same on a
// kernel without IPVS. The log, the status and the health check report it. With --on-missing-ipvs=fail it fails.
func TestIPTablesWithoutIPVS(t *testing.T) {
	needKernel(t)
	if kernelHasIPVS() {
		t.Skip("this kernel has IPVS, and nothing to fall back from")
	}
	t.Parallel()
	w := iptablesWorld(t)
	w.pod1.serve(t, 8080)
	web := numberedService(1)
	web.backends = endpoints(w.pod1)
	n := newAgent(t, w.node, "--proxy-mode", "ipvs", "--cluster-cidr", clusters)
	n.write(t, web)
	n.start(t)
	put(t, []any{"Service", "client"}, slices.Concat(
		ask("ClusterIP", w.pod2, web.vip, 80, by(w.pod1)), ask("NodePort", w.outside, fabAddr, web.nodePort, by(w.pod1)), ask("ClusterIP", w.host(), web.vip, 80, by(w.pod1)),
	))
	for name, got := range map[string]string{"status": n.mode(t), "/proxyMode": n.page(t, "/proxyMode")} {
		if got != "iptables" {
			t.Errorf("%s: mode %q, want iptables", name, got)
		}
	}
	if got := n.metric(t, `kube_ipvs_proxy_mode{active="iptables",requested="ipvs"}`); got != 1 {
		t.Errorf("kube_ipvs_proxy_mode of ipvs asked for and iptables active is %v, want 1", got)
	}
	if said := n.output.String(); strings.Count(said, "falling back to iptables mode") != 1 {
		t.Errorf("want one line that says falling back:\n%s", said)
	}
	if _, err := n.stop(t); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}

	_, err := n.try(program(), append(n.flags, "--on-missing-ipvs", "fail")...)
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "--on-missing-ipvs=fail forbids iptables mode") {
		t.Errorf("with --on-missing-ipvs=fail: %v, want exit status 1 and the reason", err)
	}
}
