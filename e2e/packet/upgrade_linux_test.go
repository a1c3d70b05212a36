package packet

import (
	"net/netip"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// anotherVersion changes the rules in our chains to those of a hypothetical other version: each has
// another text with the same meaning, some are missing and some are added. There are also unneeded
// chains with names of ours and jumps to them, and a wrong entry of a set. Each table changes at
// once, as a restore does it.
const anotherVersion = `
for family in iptables ip6tables; do
	for table in nat filter mangle; do
		$family-$1-save -t $table | sed -n '/^:KUBE-/p; s/^\(-A KUBE-.*\) -j /\1 -m comment --comment "another version" -j /p' > /run/rules
		{
			echo "*$table"
			cat /run/rules
			grep -q '^:KUBE-SERVICES' /run/rules && echo '-A KUBE-SERVICES -m comment --comment "one more" -j RETURN'
			grep -q '^:KUBE-IPVS-FILTER' /run/rules && echo '-I KUBE-IPVS-FILTER -p tcp --dport 1 -m comment --comment "one more" -j RETURN'
			echo COMMIT
		} | $family-$1-restore --noflush
	done
	$family-$1 -t nat -N KUBE-NODEPORTS
	$family-$1 -t nat -A KUBE-NODEPORTS -p tcp --dport 30999 -j RETURN
	$family-$1 -t filter -N KUBE-EXTERNAL-SERVICES
	$family-$1 -t filter -A INPUT -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
	$family-$1 -t nat -D KUBE-NODE-PORT 1
	$family-$1 -t filter -D KUBE-SOURCE-RANGES-FIREWALL 1
	$family-$1 -t nat -F KUBE-DETOUR-SCTP
done
ipset add KUBE-CLUSTER-IP 10.96.0.99,tcp:80`

// TestRulesOfAnotherVersion: the agent of before was another version. The agent that starts
// replaces the rules, and clients that connect meanwhile notice nothing.
func TestRulesOfAnotherVersion(t *testing.T) {
	for _, iptables := range []string{"nft", "legacy"} {
		t.Run(iptables, func(t *testing.T) {
			w := newWorld(t)
			n := newAgent(t, w.node, "--cluster-cidr", clusters, "--iptables-backend", iptables)
			n.writeFile(t, "nodes.yaml", w.nodes())
			web := w.web(t)
			n.write(t, rich(w)...)
			n.write(t, web)
			n.start(t)
			var runs []*load.Run
			for i, from := range []*pod{w.visitor, w.outside, w.host()} { // not masqueraded, masqueraded, sent by the node itself
				to := web.vip.of(families[i%2])
				profile := load.Profile{To: netip.MustParseAddrPort(hostPort(to, 80)), New: 20, Long: 5, Every: time.Second}
				if from.name != "host" {
					profile.Sources = []netip.Addr{from.source(to)}
				}
				runs = append(runs, from.load(t, profile))
			}
			before := n.look(t, iptables)
			if _, err := n.stop(t); err != nil {
				t.Errorf("SIGTERM: %v", err)
			}
			n.run(t, "sh", "-ec", anotherVersion, "sh", iptables)
			other := n.look(t, iptables)
			if kept := other.count("rules4", "another version"); kept < 20 {
				t.Fatalf("%d rules have another text, want all:\n%v", kept, other["rules4"])
			}
			more(t, runs[0], 20)
			start := time.Now()
			s := n.start(t)
			t.Logf("figure: ready %s after the start over rules of another version, rows written %v", time.Since(start).Round(10*time.Millisecond), s.Written)
			more(t, runs[0], 20)
			same(t, "kernel", before, n.look(t, iptables))
			same(t, "kernel beside the plan", n.planned(t), ours(n.look(t, iptables)))
			for _, run := range runs {
				got, err := run.Stop()
				t.Logf("figure: of %d new connections %d failed, the slowest took %s; of %d held open %d live",
					got.Started, got.Failures(), got.Worst().Round(time.Millisecond), len(got.Long.Conns), got.Long.Alive)
				if err != nil || got.Failures() > 0 || got.Long.Alive != 5 {
					t.Errorf("%v\n%s", err, report(got))
				}
			}
		})
	}
}
