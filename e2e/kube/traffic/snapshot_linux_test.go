package traffic

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// everything prints what a proxy may have written to a node, but for sysctls: without counters, and without what the kernel numbers.
const everything = `
for p in iptables ip6tables; do for b in nft legacy; do
	$p-$b-save 2>/dev/null | sed -E "/^#/d; s/ \[[0-9]+:[0-9]+\]//" | awk -v p="$p-$b" '/^\*/ { table = substr($1, 2) } { print p, table, $0 }'
done; done
nft -s list ruleset | awk '/^table/ { table = $2 " " $3 } /^\t[a-z]/ { part = $1 " " $2 } NF { sub(/^[\t ]+/, ""); print "nft", table, part, $0 } /^(\t})/ { part = "" }'
ipset save | sed -E 's/ (bucketsize|initval) [^ ]+//g; s/^/ipset /'
ipvsadm -Sn | sed 's/^/ipvs /'
ip -o link | sed -E 's/^[0-9]+: ([^ :@]+)(@[^ :]*)?:/link \1/'
ip -o addr | sed -E 's/^[0-9]+: +([^ ]+)/address \1/'
for f in 4 6; do ip -$f route show table all | sed "s/^/route $f /"; done`

// snapshot prints a node. Lines are sorted, because history decides their order; but that of rules within a chain is kept by numbers.
func (s *space) snapshot(t *testing.T) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(s.shell(t, everything)), "\n")
	at := map[string]int{}
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
		if fields := strings.Fields(line); len(fields) > 3 && fields[2] == "-A" {
			chain := strings.Join(fields[:4], " ")
			at[chain]++
			lines[i] = fmt.Sprintf("%s #%02d %s", chain, at[chain], strings.Join(fields[4:], " "))
		}
	}
	slices.Sort(lines)
	return lines
}

// sysctls prints all that IPVS has, and those that a proxy may have reasons to change.
func (s *space) sysctls(t *testing.T) []string {
	t.Helper()
	return strings.Split(s.shell(t, `cd /proc/sys/net
grep -H . ipv4/vs/* ipv4/ip_forward ipv6/conf/all/forwarding ipv4/conf/*/arp_ignore ipv4/conf/*/arp_announce ipv4/conf/*/route_localnet \
	ipv4/conf/*/rp_filter netfilter/nf_conntrack_tcp_* netfilter/nf_conntrack_udp_* 2>/dev/null | grep -v /kube-ipvs0/ | sort`), "\n")
}

// neighbours are rules that are on a node before a proxy comes: the kubelet's, and those of a CNI
// plug-in. All tables and hooks of iptables are there, too, because they stay once a program has
// used them.
const neighbours = `
for p in iptables ip6tables; do
	$p-nft-restore --noflush <<-EOF
	*mangle
	:PREROUTING ACCEPT [0:0]
	:INPUT ACCEPT [0:0]
	:FORWARD ACCEPT [0:0]
	:OUTPUT ACCEPT [0:0]
	:POSTROUTING ACCEPT [0:0]
	:KUBE-KUBELET-CANARY - [0:0]
	COMMIT
	*filter
	:INPUT ACCEPT [0:0]
	:FORWARD ACCEPT [0:0]
	:OUTPUT ACCEPT [0:0]
	:KUBE-FIREWALL - [0:0]
	:CNI-FORWARD - [0:0]
	-A INPUT -j KUBE-FIREWALL
	-A OUTPUT -j KUBE-FIREWALL
	-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
	COMMIT
	*nat
	:PREROUTING ACCEPT [0:0]
	:INPUT ACCEPT [0:0]
	:OUTPUT ACCEPT [0:0]
	:POSTROUTING ACCEPT [0:0]
	:KUBE-KUBELET-CANARY - [0:0]
	:CNI-HOSTPORT-DNAT - [0:0]
	-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
	-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
	COMMIT
	EOF
done
iptables-nft -A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
ipset create CNI-SET hash:ip
nft add table inet cni`

// oldModes matches what only kube-proxy's modes iptables and nftables have.
const oldModes = "KUBE-SVC-|KUBE-SVL-|KUBE-SEP-|KUBE-FW-|KUBE-EXT-|KUBE-NODEPORTS|KUBE-EXTERNAL-SERVICES|KUBE-PROXY-CANARY|filter .*KUBE-SERVICES|table ip6? kube-proxy"

// wantNothingOfOldModes fails for each rule that only kube-proxy's modes iptables and nftables have.
func (s *space) wantNothingOfOldModes(t *testing.T) {
	t.Helper()
	out := s.shell(t, `{ for p in iptables ip6tables; do for table in nat filter mangle; do $p-nft-save -t $table | sed "s/^/$p $table /"; done; done
nft list tables; } | grep -E '`+oldModes+`' || true`)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); out != "" {
		t.Errorf("%d rules of kube-proxy's other modes are left, the first:\n%s", len(lines), strings.Join(lines[:min(len(lines), 20)], "\n"))
	}
}
