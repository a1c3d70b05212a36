package firewall_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// ours are the rules of kube-ipvs in INPUT, as iptables-save has them.
const ours = `-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-A INPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL
`

const accept = "-A INPUT -m comment --comment \"kubernetes service traffic\" -j KUBE-IPVS-ACCEPT\n"

// saved is a filter table of iptables-nft.
func saved(t *testing.T, policy, lines string) []firewall.Table {
	t.Helper()
	tables, err := rules.ParseSave(strings.NewReader(fmt.Sprintf(
		"*filter\n:INPUT %s [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-IPVS-FILTER - [0:0]\n:KUBE-PROXY-FIREWALL - [0:0]\n:KUBE-IPVS-ACCEPT - [0:0]\n"+
			":KUBE-FORWARD - [0:0]\n:other - [0:0]\n%sCOMMIT\n", policy, lines)))
	if err != nil {
		t.Fatal(err)
	}
	return []firewall.Table{firewall.FromSave(rules.IPv4, rules.NFT, tables[0])}
}

func TestIPTables(t *testing.T) {
	const rejected = "packets to 3 Services (test/dns, test/out, test/web; node ports 30080) from outside and pods are dropped: "
	for _, tt := range []struct {
		name, policy, lines string
		want                []string
	}{
		{"nothing of others", "ACCEPT", ours + accept, nil},
		{"policy of drop", "DROP", ours + accept, nil},
		{"policy of drop, without ours", "DROP", "", []string{rejected + "table iptables-nft filter, chain INPUT: its policy is drop"}},
		{"RHEL, ours before", "ACCEPT", ours + "-A INPUT -p tcp -m conntrack --ctstate NEW -m tcp --dport 22 -j ACCEPT\n" + accept + "-A INPUT -j REJECT --reject-with icmp-host-prohibited\n", nil},
		{"RHEL, ours behind", "ACCEPT", ours + "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -i lo -j ACCEPT\n-A INPUT -j REJECT --reject-with icmp-host-prohibited\n" + accept,
			[]string{rejected + "table iptables-nft filter, chain INPUT, rule 5 (-j REJECT --reject-with icmp-host-prohibited)"}},
		{"refused in a chain of its own", "ACCEPT", ours + "-A INPUT -g other\n-A other -p udp -m udp --dport 53 -j ACCEPT\n-A other -j DROP\n" + accept,
			[]string{"packets to 2 Services (test/out, test/web; node ports 30080) from outside and pods are dropped: table iptables-nft filter, chain other, rule 2 (-j DROP), which INPUT leads to"}},
		{"a chain that comes back", "ACCEPT", ours + "-A INPUT -j other\n-A other -p tcp -m tcp --dport 22 -j ACCEPT\n-A other -j RETURN\n-A other -j DROP\n" + accept, nil},
		{"one range", "ACCEPT", ours + "-A INPUT -d 10.96.0.53/32 -p udp -m multiport --dports 50:52,53 -j DROP\n" + accept,
			[]string{"packets to 1 Service (test/dns) from pods are dropped: table iptables-nft filter, chain INPUT, rule 3 (-d 10.96.0.53/32 -p udp -m multiport --dports 50:52,53 -j DROP)"}},
		{"a link that is not known", "ACCEPT", ours + "-A INPUT -i eth0 -j DROP\n" + accept, []string{"unclear: table iptables-nft filter, chain INPUT"}},
		{"an extension that is not known", "ACCEPT", ours + "-A INPUT -m nope --what -j DROP\n" + accept, []string{"unclear: table iptables-nft filter, chain INPUT"}},
		{"accepted perhaps, then dropped", "ACCEPT", ours + "-A INPUT -s 10.0.0.0/8 -j ACCEPT\n-A INPUT -j DROP\n" + accept,
			[]string{"unclear: table iptables-nft filter, chain INPUT"}}, // pods pass, and of others it cannot be said
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := firewall.Judge(saved(t, tt.policy, tt.lines), some, facts)
			var got []string
			for _, line := range flat(r) {
				if !strings.HasPrefix(line, "iptables") {
					got = append(got, line)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if quiet := firewall.Quiet(saved(t, tt.policy, tt.lines), facts); quiet != (tt.want == nil) {
				t.Errorf("quiet is %t", quiet)
			}
		})
	}
}

// TestChainsAreWalkedOnce has a tower of chains, each of which may lead to the next in ten places, up to one that drops.
func TestChainsAreWalkedOnce(t *testing.T) {
	var text strings.Builder
	text.WriteString("*filter\n:INPUT ACCEPT [0:0]\n")
	for i := range 16 {
		fmt.Fprintf(&text, ":floor-%d - [0:0]\n", i)
	}
	text.WriteString("-A INPUT -i eth0 -j other\n-A INPUT -i eth1 -j floor-0\n")
	for i := range 15 {
		text.WriteString(strings.Repeat(fmt.Sprintf("-A floor-%d -i eth1 -j floor-%d\n", i, i+1), 10))
	}
	text.WriteString("-A floor-15 -j DROP\nCOMMIT\n")
	tables, err := rules.ParseSave(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan firewall.Report, 1)
	go func() {
		done <- firewall.Judge([]firewall.Table{firewall.FromSave(rules.IPv4, rules.NFT, tables[0])}, some, facts)
	}()
	select {
	case r := <-done:
		if diff := cmp.Diff([]string{"table iptables-nft filter, chain INPUT"}, r.Unclear); diff != "" {
			t.Errorf("unclear (-want +got):\n%s", diff)
		}
	case <-time.After(time.Minute):
		t.Fatal("ten to the fifteenth ways are followed one by one")
	}
}

// TestFixOfIPTables: rules go right before what drops, and before the chain that enforces the source ranges of load balancers
// none accepts an address that has some.
func TestFixOfIPTables(t *testing.T) {
	const site = "-A INPUT -j other\n-A other -p tcp -j DROP\n"
	for _, tt := range []struct {
		lines string
		want  []string
	}{
		{ours + site + accept, []string{
			"iptables-nft -w -t filter -I INPUT 3 -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT",
			"iptables-nft -w -t filter -I INPUT 3 -m set --match-set KUBE-LOAD-BALANCER dst,dst -j ACCEPT",
			"iptables-nft -w -t filter -I INPUT 3 -m set --match-set KUBE-EXTERNAL-IP dst,dst -j ACCEPT",
			"iptables-nft -w -t filter -I INPUT 3 -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -j ACCEPT",
			"iptables-nft -w -t filter -I INPUT 3 -p tcp -m tcp --dport 30000:32767 -j ACCEPT",
		}},
		{site + ours + accept, []string{
			"iptables-nft -w -t filter -I INPUT 1 -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT",
			"iptables-nft -w -t filter -I INPUT 1 -m set --match-set KUBE-LOAD-BALANCER dst,dst -m set ! --match-set KUBE-LOAD-BALANCER-FW dst,dst -j ACCEPT",
			"iptables-nft -w -t filter -I INPUT 1 -m set --match-set KUBE-EXTERNAL-IP dst,dst -j ACCEPT",
			"iptables-nft -w -t filter -I INPUT 1 -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -j ACCEPT",
			"iptables-nft -w -t filter -I INPUT 1 -p tcp -m tcp --dport 30000:32767 -j ACCEPT",
		}},
	} {
		r := firewall.Judge(saved(t, "ACCEPT", tt.lines), some, facts)
		if len(r.Blocks) != 1 {
			t.Fatalf("%d blocks", len(r.Blocks))
		}
		if diff := cmp.Diff(tt.want, r.Blocks[0].Fix); diff != "" {
			t.Errorf("commands (-want +got):\n%s", diff)
		}
	}
}

// Without sets of ipset the commands name addresses.
func TestFixOfIPTablesWithoutSets(t *testing.T) {
	bare := facts
	bare.NoSets = true
	r := firewall.Judge(saved(t, "ACCEPT", ours+"-A INPUT -j other\n-A other -p tcp -j DROP\n"+accept), some, bare)
	if len(r.Blocks) != 1 || len(r.Blocks[0].Fix) < 2 {
		t.Fatalf("blocks %+v", r.Blocks)
	}
	text := strings.Join(r.Blocks[0].Fix, "\n")
	if strings.Contains(text, "--match-set") || !strings.Contains(text, "-I INPUT 3 -d 10.96.0.10/32 -j ACCEPT") || !strings.Contains(text, "--dport 30000:32767") {
		t.Errorf("commands:\n%s", text)
	}
}

// TestForwarded is iptables mode: packets are translated before, and forwarded to endpoints.
func TestForwarded(t *testing.T) {
	forwarded := facts
	forwarded.IPVS = false
	table := func(policy, lines string) []firewall.Table {
		tables, err := rules.ParseSave(strings.NewReader("*filter\n:INPUT DROP [0:0]\n:FORWARD " + policy + " [0:0]\n:KUBE-FORWARD - [0:0]\n" +
			"-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT\n-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n" + lines + "COMMIT\n"))
		if err != nil {
			t.Fatal(err)
		}
		return []firewall.Table{firewall.FromSave(rules.IPv4, rules.Legacy, tables[0])}
	}
	for _, tt := range []struct {
		name, policy, lines string
		want                []string
	}{
		{"all pass", "ACCEPT", "-A FORWARD -j KUBE-FORWARD\n", nil},
		{"some are marked", "DROP", "-A FORWARD -j KUBE-FORWARD\n", []string{"unclear: table iptables-legacy filter, chain FORWARD"}},
		{"translated ones pass", "DROP", "-A FORWARD -j KUBE-FORWARD\n-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT\n", nil},
		{"none pass", "ACCEPT", "-A FORWARD -j DROP\n", []string{
			"packets to 2 Services (test/dns, test/web; node ports 30080) from outside and pods are dropped: table iptables-legacy filter, chain FORWARD, rule 1 (-j DROP)",
			"iptables-legacy -w -t filter -I FORWARD 1 -m conntrack --ctstate DNAT -j ACCEPT",
			"answers of the endpoints of 2 Services (test/dns, test/web) are dropped: table iptables-legacy filter, chain FORWARD, rule 1 (-j DROP)",
			"iptables-legacy -w -t filter -I FORWARD 1 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, flat(firewall.Judge(table(tt.policy, tt.lines), some, forwarded))); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnreadIsUnclear: of a chain that was not read, or leads to one that is not there, nothing is said.
func TestUnreadIsUnclear(t *testing.T) {
	key := nftables.Key{Family: "inet", Name: "other"}
	hook := &nftables.Hook{Name: "input", Drop: true}
	jump := nftables.Rule{Exprs: []nftables.Expr{{Name: "immediate", Verdict: &nftables.Verdict{Code: nftables.VerdictJump, Chain: "gone"}}}}
	for name, c := range map[string]nftables.Chain{
		"too many rules": {Hook: hook, Unread: true}, "a chain that is not there": {Hook: hook, Rules: []nftables.Rule{jump}},
		"an expression of tomorrow": {Hook: hook, Rules: []nftables.Rule{{Exprs: []nftables.Expr{{Name: "tomorrow"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := nftables.Filter{Key: key, Chains: map[string]nftables.Chain{"in": c}}
			got := flat(firewall.Judge([]firewall.Table{firewall.FromNFT(f)}, some, facts))
			if diff := cmp.Diff([]string{"unclear: table inet other, chain in"}, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}
