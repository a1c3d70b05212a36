package packet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// This file is about other programs that have tables of nftables beside ours.

// kubeProxyTables are the tables of a kube-proxy in nftables mode that carries one Service: its maps, chains and names, as those of
// Kubernetes 1.33 (pkg/proxy/nftables/proxier.go) has them. Every client is masqueraded.
func kubeProxyTables(s service) string {
	var b strings.Builder
	for _, family := range families {
		word := map[int]string{4: "ip", 6: "ip6"}[family]
		vip, port := s.vip.of(family), s.ports[0]
		name := "service-AGVIK4B6-test/web/tcp/" + port.name
		fmt.Fprintf(&b, "add table %[1]s kube-proxy { comment \"rules for kube-proxy\"; }\ndelete table %[1]s kube-proxy\ntable %[1]s kube-proxy {\n", word)
		b.WriteString("\tchain mark-for-masquerade { meta mark set meta mark | 0x4000; }\n")
		b.WriteString("\tchain masquerading { meta mark & 0x4000 == 0 return; meta mark set meta mark ^ 0x4000; masquerade fully-random; }\n")
		var ends []string
		for _, e := range s.backends {
			if strings.Contains(e.addr, ":") != (family == 6) {
				continue
			}
			end := "endpoint-" + strings.NewReplacer(":", "-", ".", "-").Replace(e.addr)
			fmt.Fprintf(&b, "\tchain %s { jump mark-for-masquerade; meta l4proto tcp dnat to %s; }\n", end, hostPort(e.addr, port.target))
			ends = append(ends, fmt.Sprintf("%d : goto %s", len(ends), end))
		}
		fmt.Fprintf(&b, "\tchain %s { numgen random mod %d vmap { %s }; }\n", name, len(ends), strings.Join(ends, ", "))
		fmt.Fprintf(&b, "\tmap service-ips { type ipv%d_addr . inet_proto . inet_service : verdict; elements = { %s . tcp . %d : goto %s }; }\n",
			family, vip, port.port, name)
		fmt.Fprintf(&b, "\tchain services { %s daddr . meta l4proto . th dport vmap @service-ips; }\n", word)
		b.WriteString("\tchain nat-prerouting { type nat hook prerouting priority -100; policy accept; jump services; }\n")
		b.WriteString("\tchain nat-output { type nat hook output priority -100; policy accept; jump services; }\n")
		b.WriteString("\tchain nat-postrouting { type nat hook postrouting priority 100; policy accept; jump masquerading; }\n}\n")
	}
	return b.String()
}

// TestNFTablesTakeover: the tables of a kube-proxy in nftables mode carry a Service, the agent takes over under load, and in the end
// a kube-proxy has the node back. No request fails on either way, and tables of other programs stay as they are.
func TestNFTablesTakeover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node.speaksFrom(t, fabAddr)
	web := w.web(t)
	load := func() {
		t.Helper()
		if _, err := w.node.feed(kubeProxyTables(web), "nft", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	const foreign, tables = "nft -s list table inet theirs", "nft list tables"
	w.node.shell(t, "nft add table inet theirs; nft add chain inet theirs c '{ type filter hook input priority 5; }'; nft add rule inet theirs c counter")
	theirs := w.node.shell(t, foreign)
	load()
	runs := w.steady(t, web.vip)
	for _, run := range runs {
		more(t, run, 20)
	}

	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--rules", "nftables")
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, web)
	n.start(t)
	poll(t, "the tables of kube-proxy to be gone", settleTimeout, func() error {
		if text := n.shell(t, tables); strings.Contains(text, "kube-proxy") {
			return errors.New(text)
		}
		return nil
	})
	for _, run := range runs {
		more(t, run, 20)
	}
	settled(t, runs, 5)

	runs = w.steady(t, web.vip)
	more(t, runs[0], 20)
	if _, err := n.stop(t); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	load()
	n.run(t, program(), append([]string{"cleanup", "--for=nftables"}, n.flags...)...)
	if text := n.shell(t, tables); strings.Contains(text, "kube-ipvs") || !strings.Contains(text, "table ip6 kube-proxy") {
		t.Errorf("tables after the hand-back:\n%s", text)
	}
	for _, run := range runs {
		more(t, run, 20)
	}
	settled(t, runs[:2], 0)
	fromVIP(t, runs[2])
	if after := w.node.shell(t, foreign); after != theirs {
		t.Errorf("a table of another program:\n%s\nwant\n%s", after, theirs)
	}
}

// lockedTables is a node that lets nothing in and nothing through but answers, neighbours and itself, by nftables.
const lockedTables = `nft -f - <<'X'
table inet site {
	chain input {
		type filter hook input priority filter; policy drop;
		iif "lo" accept
		meta l4proto { icmp, ipv6-icmp } accept
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
X`

// TestNFTablesFirewalls: with rules in nftables an accept of ours does not overrule the filters of others. A policy of drop, and a rule
// that refuses everything in the end, are named with the rules to add. With these, packets pass, and so do those to health-check node
// ports.
func TestNFTablesFirewalls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script, table string
		fails               backend.Failure
		tool                string
	}{
		{"nftables with a policy of drop", lockedTables, "table inet site, chain input: its policy is drop", backend.Timeout, "nft"},
		{"iptables with a policy of drop", locked, "chain INPUT: its policy is drop", backend.Timeout, "iptables-nft"},
		{"iptables that refuses in the end", rhel, "chain INPUT, rule", backend.Other, "iptables-nft"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := os.Stat("/proc/net/ip_tables_names"); err != nil && tt.tool != "nft" {
				t.Skip("this kernel has no iptables")
			}
			w := newWorld(t)
			w.pod1.serve(t, 8080)
			w.remote1.serve(t, 8080)
			s := numberedService(1)
			s.backends, s.externalLocal, s.healthPort = endpoints(w.pod1, w.remote1), true, healthPort
			n := newAgent(t, w.node, "--detect-local-mode", "NodeCIDR", "--rules", "nftables")
			n.writeFile(t, "nodes.yaml", w.nodes())
			n.write(t, s)
			n.start(t)
			n.walled(t, "all is well", "")
			w.node.shell(t, tt.script)
			put(t, []any{"Service", "client"}, ask("walled", w.pod2, s.vip, 80, outcome{fails: tt.fails}, backend.TCP))
			fixes := n.named(t, tt.table)
			t.Logf("the rules to add:\n%s", strings.Join(fixes, "\n"))
			w.node.shell(t, strings.Join(fixes, "\n"))
			poll(t, "the end to be told", settleTimeout, func() error {
				if !strings.Contains(n.output.String(), "no longer drops packets of Services") {
					return errors.New("not yet")
				}
				return nil
			})
			n.walled(t, "all is well", "")
			put(t, []any{"Service", "client"}, slices.Concat(
				ask("ClusterIP", w.pod2, s.vip, 80, by(w.pod1, w.remote1), backend.TCP), ask("NodePort", w.outside, fabAddr, s.nodePort, by(w.pod1), backend.TCP)))
			for _, addr := range fabAddr.all() {
				poll(t, "the health at "+addr, settleTimeout, func() error {
					_, err := w.outside.health(addr)
					return err
				})
			}
		})
	}
}

// TestNFTablesWords: what diff and explain print of rules and sets are commands of nft, which put back what they name.
func TestNFTablesWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	s := numberedService(1)
	s.backends = endpoints(w.pod1)
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--rules", "nftables")
	n.write(t, s)
	n.start(t)
	out, err := n.verb("explain", "test/service-1", "--all")
	if err != nil || !strings.Contains(out, "nat-PREROUTING nat-KUBE-SERVICES: in KUBE-CLUSTER-IP") || !strings.Contains(out, "filters of other programs see the packet, too") {
		t.Errorf("explain: %v\n%s", err, out)
	}
	if _, err := n.stop(t); err != nil { // nothing is repaired meanwhile
		t.Errorf("SIGTERM: %v", err)
	}
	before := n.shell(t, sortedTables)
	for _, lost := range []string{
		fmt.Sprintf("nft delete element ip kube-ipvs KUBE-CLUSTER-IP '{ %s . tcp . 80 }'", s.vip.v4),
		fmt.Sprintf("nft delete element ip6 kube-ipvs KUBE-6-CLUSTER-IP '{ %s . tcp . 80 }'", s.vip.v6),
		"nft flush chain ip kube-ipvs nat-KUBE-MARK-MASQ",
	} {
		n.shell(t, lost)
	}
	args := []string{"diff", "--source-dir", n.manifests, "--hostname-override", n.name, "--cluster-cidr", clusters, "--rules", "nftables"}
	out, err = n.try(program(), args...)
	if err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("diff of lost rows: %v", err)
	}
	var commands []string
	for line := range strings.Lines(out) {
		if command, is := strings.CutPrefix(strings.TrimSpace(line), "+"); is {
			commands = append(commands, command)
		}
	}
	if len(commands) < 3 {
		t.Fatalf("diff:\n%s", out)
	}
	t.Logf("what diff prints:\n%s", strings.Join(commands, "\n"))
	if _, err := n.feed(strings.Join(commands, "\n")+"\n", "nft", "-f", "-"); err != nil {
		t.Fatalf("the commands of diff: %v\n%s", err, strings.Join(commands, "\n"))
	}
	if after := n.shell(t, sortedTables); after != before {
		t.Errorf("tables after the commands of diff:\n%s\nwant\n%s", after, before)
	}
}

// TestNFTablesDropsAreCounted: counters of nftables are in the metric and in explain, as those of iptables are.
func TestNFTablesDropsAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.drops(t, newAgent(t, w.node, "--cluster-cidr", clusters, "--rules", "nftables"), map[string]string{
		"far": "no_local_endpoints all Services together", "narrow": "source_ranges all Services together", "vip": "no_service all Services together",
	})
}

// TestNFTablesFigures compares rules in iptables and in nftables with a thousand Services, or with those of KUBE_IPVS_E2E_SERVICES. An
// agent starts on an empty kernel, then ten endpoints and ten Services change one after the other. Another one, with ten Services,
// shows how many programs a start launches: their number does not depend on that of Services. It asserts no time.
func TestNFTablesFigures(t *testing.T) {
	if os.Getenv("KUBE_IPVS_E2E_FIGURES") == "" {
		t.Skip("KUBE_IPVS_E2E_FIGURES is not set: make stress WHAT=nftables-figures")
	}
	services := servicesOr(t, manyServices)
	table := newTable("rules in", "programs launched in a start", "start", "one endpoint (median of 10)", "pass alone", "one Service (median of 10)", "pass alone", "RSS")
	for _, rules := range ruleStores {
		programs := programsOfStart(t, rules)
		n := newAgent(t, newWorld(t).node, "--cluster-cidr", clusters, "--drain=0s", "--rules", rules)
		start := n.startMany(t, services)
		one, onePass := n.median(t, func(i int) service {
			s := numbered(i)
			s.backends[2].unready = true
			return s
		})
		added, addedPass := n.median(t, func(i int) service { return numbered(services + i) })
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.process.Process.Pid))
		n.must(t, err)
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		rss, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		t.Logf("figure: rules in %s: start %s, %s", rules, start, rss) // in case that the other kind does not come to its end
		table.row(rules, programs, start.Round(10*time.Millisecond), one, onePass, added, addedPass, rss)
		n.kill(t)
	}
	t.Logf("figure: %d Services of %d endpoints\n%s", services, manyEndpoints, table)
}

// startMany starts the agent with so many Services, and returns the time until all of them are in the kernel.
func (n *proxy) startMany(t *testing.T, services int) time.Duration {
	t.Helper()
	for i := range services {
		n.write(t, numbered(i))
	}
	begun := time.Now()
	n.launch(t, append([]string{program()}, n.flags...))
	n.settle(t, "be ready", func(s agent.Status) bool { return s.Ready && s.Failures == 0 && s.Services == services })
	return time.Since(begun)
}

// programsOfStart counts the programs that an agent launches in a start with ten Services.
func programsOfStart(t *testing.T, rules string) int {
	t.Helper()
	n := newAgent(t, newWorld(t).node, "--cluster-cidr", clusters, "--rules", rules)
	for i := range 10 {
		n.write(t, numbered(i))
	}
	record := filepath.Join(t.TempDir(), "strace")
	n.launch(t, append([]string{"strace", "-D", "-f", "-qq", "--seccomp-bpf", "-o", record, "-e", "signal=none", "-e", "trace=execve", program()}, n.flags...))
	n.settle(t, "be ready", func(s agent.Status) bool { return s.Ready && s.Failures == 0 })
	if _, err := n.stop(t); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	text, err := os.ReadFile(record)
	n.must(t, err)
	programs := strings.Count(string(text), " = 0\n") - 1 // without the agent itself
	if rules == "nftables" && programs > maxPrograms {
		t.Errorf("%d programs launched:\n%s", programs, text)
	}
	return programs
}

// maxPrograms is how many programs an agent with rules in nftables may launch: modprobe, once for all modules and once for each with
// parameters.
const maxPrograms = 3

// median edits ten Services one after the other. It returns how long such a change takes until the agent shows it as written, and how
// long the agent's pass takes by its own clock. The status is read every 20 ms.
func (n *proxy) median(t *testing.T, edit func(i int) service) (took, pass time.Duration) {
	t.Helper()
	var whole, passes []time.Duration
	for i := range 10 {
		before, err := n.status()
		n.must(t, err)
		s := edit(i)
		begun := time.Now()
		n.write(t, s)
		after := n.settle(t, "write the change", func(s agent.Status) bool { return s.Cycles > before.Cycles && s.Failures == 0 })
		whole, passes = append(whole, time.Since(begun)), append(passes, after.Last.Took)
	}
	slices.Sort(whole)
	slices.Sort(passes)
	return whole[len(whole)/2].Round(time.Millisecond), passes[len(passes)/2].Round(10 * time.Microsecond)
}
