package packet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// debianDrop is /etc/nftables.conf of Debian with a policy of drop.
const debianDrop = `nft -f - <<'X'
table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		iif "lo" accept
		meta l4proto { icmp, ipv6-icmp } accept
		tcp dport 22 accept
	}
}
X`

// refusedEarly is a rule of iptables that the accept of ours comes behind.
const refusedEarly = `
for ip in iptables ip6tables; do
	$ip-nft -N site
	$ip-nft -A site -i lo -j RETURN
	$ip-nft -A site -p tcp -m tcp --dport 22 -j RETURN
	$ip-nft -A site -p tcp -j REJECT
	for proto in udp sctp; do $ip-nft -A site -p $proto -j DROP; done
	$ip-nft -I INPUT 1 -j site
done`

// TestFirewallsOfOthers: a filter of another program drops what goes to Services. It is named by the log that goes with the
// Event, by the metric, by check and by explain; with the commands that are printed, packets pass.
func TestFirewallsOfOthers(t *testing.T) {
	t.Parallel()
	firewalld, err := filepath.Abs(filepath.Join("testdata", "firewalld.nft"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, script string
		table        string // as it is named
		fails        backend.Failure
	}{
		{"nftables with a policy of drop", debianDrop, "table inet filter, chain input: its policy is drop", backend.Timeout},
		{"a chain of iptables", refusedEarly, "chain site, rule 3", backend.Refused},
		{"firewalld", "nft -f " + firewalld, "table inet firewalld, chain filter_IN_public", backend.Other},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pod1.serve(t, 8080)
			w.remote1.serve(t, 8080)
			s := numberedService(1)
			s.backends = endpoints(w.pod1, w.remote1)
			n := newAgent(t, w.node, "--detect-local-mode", "NodeCIDR")
			n.writeFile(t, "nodes.yaml", w.nodes())
			n.write(t, s)
			n.start(t)
			put(t, []any{"Service", "client"}, w.through(s))
			n.walled(t, "all is well", "")

			w.node.shell(t, tt.script)
			fixes := n.named(t, tt.table)
			stopped := ask("walled", w.pod2, s.vip, 80, outcome{fails: tt.fails}, backend.TCP)
			put(t, []any{"Service", "client"}, stopped)

			w.node.shell(t, n.mending(t, fixes))
			poll(t, "the end to be told", settleTimeout, func() error {
				if !strings.Contains(n.output.String(), "no longer drops packets of Services") {
					return errors.New("not yet")
				}
				return nil
			})
			n.walled(t, "all is well", "")
			put(t, []any{"Service", "client"}, w.through(s))
		})
	}
}

// through are the questions to each frontend of a Service, by a pod and from outside.
func (w *world) through(s service) []*question {
	var questions []*question
	for _, frontend := range words[dimFrontend] {
		to, port := s.target(frontend, fabAddr)
		for _, c := range []*pod{w.pod2, w.outside} {
			if frontend != "ClusterIP" || c == w.pod2 {
				questions = slices.Concat(questions, ask(frontend, c, to, port, by(w.pod1, w.remote1), protos...))
			}
		}
	}
	return questions
}

// walled checks the output of check and explain.
func (n *proxy) walled(t *testing.T, verdict, table string) string {
	t.Helper()
	out, err := n.verb("explain", "test/service-1")
	if (err == nil) != (table == "") || !strings.HasPrefix(out, verdict) || !strings.Contains(out, table) {
		t.Errorf("explain: %v, want %q, %q of\n%s", err, verdict, table, out)
	}
	checked, err := n.verb("check", "-o", "json")
	if err != nil {
		t.Errorf("check: %v\n%s", err, checked)
	}
	if at := strings.Index(checked, `"firewalls of others"`); at < 0 || !strings.Contains(checked[at:], table) ||
		strings.Contains(checked[at:], `"state": "ok"`) != (table == "") {
		t.Errorf("check: want %q of\n%s", table, checked)
	}
	return out
}

// named waits until the agent names a table, looks for it in all other places, and returns the commands that mend it.
func (n *proxy) named(t *testing.T, table string) []string {
	t.Helper()
	poll(t, "the agent to name it", settleTimeout, func() error {
		if out := n.output.String(); !strings.Contains(out, "a firewall drops packets of Services") {
			return errors.New("not yet")
		}
		return nil
	})
	out := n.walled(t, "a firewall drops packets to 1 Service (test/service-1", table)
	if metrics := n.page(t, "/metrics"); !strings.Contains(metrics, "\nkube_ipvs_firewall_blocks{") {
		t.Errorf("no metric in\n%s", metrics)
	}
	if strings.Contains(out, "from a pod of this node: forwarded") {
		t.Errorf("a packet that is dropped is called forwarded:\n%s", out)
	}
	fixes := commands(out)
	if len(fixes) == 0 {
		t.Fatalf("no commands in\n%s", out)
	}
	return fixes
}

// commands are those that explain prints to let packets pass.
func commands(out string) (fixes []string) {
	for part := range strings.SplitSeq(out, "\nTo let pass ") {
		for line := range strings.Lines(part) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "nft ") || strings.HasPrefix(line, "iptables-") || strings.HasPrefix(line, "ip6tables-") || strings.HasPrefix(line, "firewall-cmd ") {
				fixes = append(fixes, line)
			}
		}
	}
	return fixes
}

// open runs the commands that explain prints for Services, until it prints none. With rules in nftables an accept of ours does not
// overrule filters of others.
func (n *proxy) open(t *testing.T, services ...service) {
	t.Helper()
	for _, s := range services {
		poll(t, "packets to pass to "+s.name, settleTimeout, func() error {
			out, err := n.verb("explain", "test/"+s.name)
			if err == nil && strings.HasPrefix(out, "all is well") {
				return nil
			}
			n.shell(t, strings.Join(commands(out), "\n"))
			return errors.Join(err, fmt.Errorf("explain prints\n%s", out))
		})
	}
}

// mending is what the commands do. The guest has no firewalld: its own rules after exactly these commands were kept, and are
// loaded instead.
func (n *proxy) mending(t *testing.T, fixes []string) string {
	t.Helper()
	if !strings.HasPrefix(fixes[0], "firewall-cmd ") {
		return strings.Join(fixes, "\n")
	}
	path, err := filepath.Abs(filepath.Join("testdata", "firewalld-mended.nft"))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, line := range fixes {
		fmt.Fprintf(&want, "# %s\n", line)
	}
	if !strings.HasPrefix(string(kept), want.String()) {
		t.Fatalf("the commands are not those of %s:\n%s", path, want.String())
	}
	return "nft delete table inet firewalld; nft -f " + path
}
