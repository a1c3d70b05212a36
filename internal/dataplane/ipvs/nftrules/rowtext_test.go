package nftrules_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
)

// Rows that diff and explain print are commands of nft, which an operator can use.
func TestRowsInWordsOfNFTables(t *testing.T) {
	for _, tt := range []struct{ kind, row, want string }{
		{"sets", "add KUBE-CLUSTER-IP 10.96.0.1,tcp:80", "add element ip kube-ipvs KUBE-CLUSTER-IP { 10.96.0.1 . tcp . 80 }"},
		{"sets", "add KUBE-6-LOAD-BALANCER-SOURCE-CID fd00::1,udp:53,2001:db8::/32", "add element ip6 kube-ipvs KUBE-6-LOAD-BALANCER-SOURCE-CID { fd00::1 . udp . 53 . 2001:db8::/32 }"},
		{"sets", "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536", "add set ip kube-ipvs KUBE-CLUSTER-IP { type ipv4_addr . inet_proto . inet_service; }"},
		{"sets", "add STRANGER 10.96.0.1", "add STRANGER 10.96.0.1"},
		{"sets", "add KUBE-CLUSTER-IP nonsense", "add KUBE-CLUSTER-IP nonsense"},
		{"rules", "ip nat -N KUBE-MARK-MASQ", "add chain ip kube-ipvs nat-KUBE-MARK-MASQ"},
		{"rules", "ip6 nat -A KUBE-SERVICES -m comment --comment \"words\" -m set --match-set KUBE-6-NODE-PORT-IPS dst -j KUBE-NODE-PORT", "add rule ip6 kube-ipvs nat-KUBE-SERVICES ip6 daddr @KUBE-6-NODE-PORT-IPS jump nat-KUBE-NODE-PORT comment \"words\""},
		{"rules", "ip nat -P FORWARD", "ip nat -P FORWARD"},
		{"rules", "", ""},
		{"servers", "-A -t 10.96.0.1:80 -s rr", "-A -t 10.96.0.1:80 -s rr"},
	} {
		if got := nftrules.RowText(tt.kind, tt.row); got != tt.want {
			t.Errorf("%s %q:\n%s, want\n%s", tt.kind, tt.row, got, tt.want)
		}
	}
	for group, want := range map[string]string{"ip nat KUBE-SERVICES": "ip kube-ipvs nat-KUBE-SERVICES", "KUBE-CLUSTER-IP": "KUBE-CLUSTER-IP", "-t 10.96.0.1:80": "-t 10.96.0.1:80"} {
		if got := nftrules.GroupText(group); got != want {
			t.Errorf("group %q: %q, want %q", group, got, want)
		}
	}
}

func TestStepsInWordsOfNFTables(t *testing.T) {
	for step, want := range map[string]string{
		"nat PREROUTING KUBE-SERVICES: in KUBE-CLUSTER-IP; why: marked 0x4000 for masquerade (KUBE-MARK-MASQ)": "nat-PREROUTING nat-KUBE-SERVICES: in KUBE-CLUSTER-IP; why: marked 0x4000 for masquerade (nat-KUBE-MARK-MASQ)",
		"filter INPUT: rules of others": "filter-INPUT: rules of others",
		"filter INPUT KUBE-PROXY-FIREWALL KUBE-SOURCE-RANGES-FIREWALL: in KUBE-LOAD-BALANCER-FW: passes": "filter-INPUT filter-KUBE-PROXY-FIREWALL filter-KUBE-SOURCE-RANGES-FIREWALL: in KUBE-LOAD-BALANCER-FW: passes",
		"IPVS LOCAL_IN: virtual server 10.96.0.1:80/tcp":                                                 "IPVS LOCAL_IN: virtual server 10.96.0.1:80/tcp",
		"routing: 10.96.0.1 is local (kube-ipvs0, or a local route of its range)":                        "routing: 10.96.0.1 is local (kube-ipvs0, or a local route of its range)",
	} {
		if got := nftrules.StepText(step); got != want {
			t.Errorf("step %q:\n%s, want\n%s", step, got, want)
		}
	}
}
