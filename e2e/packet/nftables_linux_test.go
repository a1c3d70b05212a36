package packet

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// This file is about ipvs mode with its rules in nftables (--rules=nftables).

// listTables prints our tables by the tool of nftables. sortedTables does not depend on the order in which chains were made.
const (
	listTables   = "nft -s list table ip kube-ipvs 2>/dev/null || true; nft -s list table ip6 kube-ipvs 2>/dev/null || true"
	sortedTables = "(" + listTables + ") | sort"
)

// ofIPTables returns a script that prints rules of iptables, and sets of ipset where the kernel has it.
func ofIPTables() string {
	script := "iptables-nft-save; ip6tables-nft-save"
	if kernelHasIPSet() {
		script += "; ipset list -n"
	}
	return script
}

// inTables checks that rules and sets are in nftables alone.
func (n *proxy) inTables(t *testing.T) {
	t.Helper()
	if text := n.shell(t, listTables); !strings.Contains(text, "chain nat-KUBE-SERVICES") || !strings.Contains(text, "set KUBE-6-CLUSTER-IP") {
		t.Errorf("tables of nftables:\n%s", text)
	}
	if text := n.shell(t, ofIPTables()); strings.Contains(text, "KUBE-") {
		t.Errorf("rules or sets of iptables:\n%s", text)
	}
}

// TestNFTablesTruthTable asks what TestTruthTable asks.
func TestNFTablesTruthTable(t *testing.T) {
	t.Parallel()
	all := truth(t, truthFile)
	newTruthWorld(t, slices.Concat(byNodeCIDR, []string{"--rules", "nftables"})...).everything(t, all)
}

// TestNFTablesTruthUnderOtherSettings asks with other matches and with captured addresses.
func TestNFTablesTruthUnderOtherSettings(t *testing.T) {
	truthUnder(t, []string{"--rules", "nftables"}, atBridge, masqueradeAll, captured)
}

// TestNFTablesSwitch: the agent starts again with the other setting, there and back, while clients connect. None of them notices.
// The rules and sets of the setting before are gone afterwards, and cleanup leaves nothing of either kind.
func TestNFTablesSwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "nodes.yaml", w.nodes())
	web := w.web(t)
	n.write(t, web)
	n.start(t, "--rules", "iptables")
	runs := w.steady(t, web.vip)
	more(t, runs[0], 20)
	for _, rules := range []string{"nftables", "iptables", "nftables"} {
		if _, err := n.stop(t); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
		n.start(t, "--rules", rules)
		other := ofIPTables()
		if rules == "iptables" {
			other = listTables
		}
		poll(t, "rules of the other setting to be gone", settleTimeout, func() error {
			if text := n.shell(t, other); strings.Contains(text, "KUBE-") {
				return fmt.Errorf("left:\n%s", text)
			}
			return nil
		})
		more(t, runs[0], 20)
	}
	settled(t, runs, 5)
	n.inTables(t)
	if _, err := n.stop(t); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	n.run(t, program(), append([]string{"cleanup"}, n.flags...)...)
	if left := n.shell(t, listTables+"; "+ofIPTables()+"; ipvsadm -Sn; ip -o link show dev kube-ipvs0 2>/dev/null || true"); strings.Contains(left, "KUBE-") || strings.Contains(left, "10.96.0.20") || strings.Contains(left, "kube-ipvs") {
		t.Errorf("cleanup leaves:\n%s", left)
	}
}

// nothing hides the tools of iptables from the agent.
var nothing = []string{"env", "PATH=/nonexistent"}

// TestNFTablesWithoutTools: the agent finds no tool of iptables, and takes nftables by itself. It starts no process, and logs where
// the rules are.
func TestNFTablesWithoutTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "nodes.yaml", w.nodes())
	web := w.web(t)
	n.write(t, web)
	n.launch(t, append(slices.Concat(nothing, []string{program()}), n.flags...))
	status := n.settle(t, "be ready", func(s agent.Status) bool { return s.Ready && s.Failures == 0 })
	n.inTables(t)
	if status.Rules != "nftables" || !strings.Contains(status.RulesReason, "not supported on this node") {
		t.Errorf("status: rules %q because of %q", status.Rules, status.RulesReason)
	}
	if !strings.Contains(n.output.String(), "rules and sets are in nftables") {
		t.Error("the log does not say where the rules are")
	}
	runs := w.steady(t, web.vip)
	more(t, runs[0], 20)
	settled(t, runs, 5)
	var rows struct {
		Items []struct{ Table, Chain, Rule string }
	}
	if err := json.Unmarshal([]byte(n.run(t, program(), append([]string{"show", "kernel", "rules", "-o", "json"}, n.flags...)...)), &rows); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(rows.Items, func(r struct{ Table, Chain, Rule string }) bool {
		return r.Table == "kube-ipvs" && r.Chain == "nat-KUBE-MARK-MASQ" && strings.HasPrefix(r.Rule, "meta mark set")
	}) {
		t.Errorf("show kernel rules: %+v", rows.Items)
	}
	if out := n.run(t, program(), append([]string{"show", "kernel", "sets", "KUBE-CLUSTER-IP"}, n.flags...)...); !strings.Contains(out, web.vip.v4+" . tcp . 80") {
		t.Errorf("show kernel sets:\n%s", out)
	}
	if out := n.run(t, program(), append([]string{"diff"}, n.flags...)...); !strings.Contains(out, "equal") {
		t.Errorf("diff:\n%s", out)
	}
}

var lossesOfNFTables = []loss{
	{"every table", "nft flush ruleset", sortedTables, true},
	{"our table", "nft delete table ip kube-ipvs", sortedTables, true},
	{"one element", "nft delete element ip kube-ipvs KUBE-CLUSTER-IP '{ 10.100.0.3 . tcp . 80 }'", sortedTables, true},
	{"every element of a set", "nft flush set ip kube-ipvs KUBE-CLUSTER-IP", sortedTables, true},
	{"rules of a chain", "nft flush chain ip kube-ipvs nat-KUBE-MARK-MASQ", sortedTables, true},
	{"rules of a base chain", "nft flush chain ip kube-ipvs nat-PREROUTING", sortedTables, true},
	{"nothing but a rule too many", "nft insert rule ip kube-ipvs nat-KUBE-SERVICES counter drop", sortedTables, true},
}

// TestNFTablesRepairs: rows that another program takes out of our tables are back though no audit runs, and the log names the program. A
// table of that program stays as it is.
func TestNFTablesRepairs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--rules", "nftables")
	for i := range 10 {
		n.write(t, numbered(i))
	}
	n.start(t)
	const foreign = "nft list table inet theirs"
	for _, l := range lossesOfNFTables {
		n.shell(t, "nft add table inet theirs; nft add chain inet theirs c '{ type filter hook input priority 5; }'")
		before := n.shell(t, foreign)
		took := n.suffer(t, l)
		t.Logf("figure: %s: repaired after %s", l.name, took)
		if l.name == "every table" {
			continue
		}
		if after := n.shell(t, foreign); after != before {
			t.Errorf("%s: a table of another program:\n%s\nwant\n%s", l.name, after, before)
		}
	}
	if log := n.output.String(); !strings.Contains(log, "another program changed our tables of nftables") || !strings.Contains(log, `"nft[`) {
		t.Error("the log does not name the program")
	}
}

// TestNFTablesWithoutModules: a kernel without ip_set, x_tables and nft_compat carries Services in ipvs mode. The tools of iptables
// are there and of no use.
func TestNFTablesWithoutModules(t *testing.T) {
	const lacking = "ip_set x_tables ip_tables ip6_tables nft_compat"
	for m := range strings.FieldsSeq(lacking) {
		if _, err := os.Stat("/sys/module/" + m); err == nil {
			t.Skipf("this kernel has %s already: the stage contracts of make test runs this test first", m)
		}
	}
	const barred = "/etc/modprobe.d/no-iptables.conf"
	var text strings.Builder
	for m := range strings.FieldsSeq(lacking) {
		fmt.Fprintf(&text, "install %s /bin/false\n", m)
	}
	if err := os.WriteFile(barred, []byte(text.String()), 0o644); err != nil {
		t.Skipf("modules cannot be kept away from this kernel: %v", err)
	}
	defer os.Remove(barred)
	all := truth(t, truthFile)
	w := newTruthWorld(t, "--detect-local-mode", "NodeCIDR")
	put(t, truthColumns, w.all(all, backend.TCP))
	put(t, truthColumns, w.sctpBasics(all))
	for _, agent := range []*proxy{w.agentA, w.agentB} {
		status, err := agent.status()
		if err != nil || status.Mode != "ipvs" || status.Rules != "nftables" {
			t.Errorf("mode %s, rules in %s because of %s, %v", status.Mode, status.Rules, status.RulesReason, err)
		}
		t.Logf("rules are in nftables because of: %s", status.RulesReason)
	}
	for m := range strings.FieldsSeq(lacking) {
		if _, err := os.Stat("/sys/module/" + m); err == nil {
			t.Errorf("module %s is loaded", m)
		}
	}
}
