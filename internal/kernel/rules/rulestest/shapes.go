package rulestest

import (
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// shape is one chain of the shape catalogue. In rules, SET- stands for the
// family's set prefix, LO for its loopback network, VIP and EP for host
// addresses, EPPORT for address and port, UNREACH for the default refusal.
type shape struct{ table, name, rules string }

// shapes has every form of rule of kube-proxy's ipvs mode, our additions to it, and the constant
// and per-Service rules of its iptables mode, in the form that iptables-save prints.
var shapes = []shape{
	{"nat", "KUBE-SERVICES", `-s LO -j RETURN
-m set --match-set SET-DETOUR dst,dst -j KUBE-DETOUR
-m set --match-set SET-NODE-PORT-IPS dst -j KUBE-NODE-PORT
-m comment --comment "Kubernetes service lb portal" -m set --match-set SET-LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER
-m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set SET-CLUSTER-IP src,dst -j KUBE-MARK-MASQ
! -s NET -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set SET-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
! -i veth+ -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set SET-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
-m comment --comment "Kubernetes service external ip + port for masquerade and filter purpose" -m set --match-set SET-EXTERNAL-IP dst,dst -j KUBE-MARK-MASQ
-m comment --comment "Kubernetes service external ip + port for masquerade and filter purpose" -m set --match-set SET-EXTERNAL-IP dst,dst -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT
-m comment --comment "Kubernetes service external ip + port with externalTrafficPolicy=local" -m set --match-set SET-EXTERNAL-IP-LOCAL dst,dst -m addrtype --dst-type LOCAL -j ACCEPT
-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-m set --match-set SET-CLUSTER-IP dst,dst -j ACCEPT
-m set --match-set SET-LOAD-BALANCER dst,dst -j ACCEPT`},
	{"nat", "KUBE-LOAD-BALANCER", `-m comment --comment "Kubernetes service load balancer ip + port with externalTrafficPolicy=local" -m set --match-set SET-LOAD-BALANCER-LOCAL dst,dst -j RETURN
-j KUBE-MARK-MASQ`},
	{"nat", "KUBE-NODE-PORT", `-p tcp -m comment --comment "Kubernetes nodeport TCP port with externalTrafficPolicy=local" -m set --match-set SET-NODE-PORT-LOCAL-TCP dst -j RETURN
-p tcp -m comment --comment "Kubernetes nodeport TCP port for masquerade purpose" -m set --match-set SET-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
-p udp -m comment --comment "Kubernetes nodeport UDP port for masquerade purpose" -m set --match-set SET-NODE-PORT-UDP dst -j KUBE-MARK-MASQ
-p sctp -m comment --comment "Kubernetes nodeport SCTP port for masquerade purpose with type \'hash ip:port\'" -m set --match-set SET-NODE-PORT-SCTP-HASH dst,dst -j KUBE-MARK-MASQ`},
	{"nat", "KUBE-DETOUR", `-m set --match-set SET-LOAD-BALANCER-FW dst,dst -m set ! --match-set SET-LOAD-BALANCER-SOURCE-CID dst,dst,src -m set ! --match-set SET-LOAD-BALANCER-SOURCE-IP dst,dst,src -j RETURN
-s NET -j KUBE-DETOUR-TO
! -s NET -m comment --comment "not a pod of this node" -j RETURN
-i cni0 -j KUBE-DETOUR-TO
-i cali+ -j KUBE-DETOUR-TO
! -i cali+ -j RETURN
-m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
-m comment --comment "traffic of this node" -m addrtype --src-type LOCAL -j KUBE-DETOUR-TO`},
	{"nat", "KUBE-DETOUR-TO", `-d VIP -p tcp -m tcp --dport 80 -j DNAT --to-destination EPPORT
-d VIP -p udp -m udp --dport 80 -j DNAT --to-destination EPPORT
-d VIP -p sctp -m sctp --dport 80 -j DNAT --to-destination EPPORT`},
	{"nat", "KUBE-MARK-MASQ", `-j MARK --set-xmark 0x4000/0x4000`},
	{"nat", "KUBE-POSTROUTING", `-m comment --comment "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose" -m set --match-set SET-LOOP-BACK dst,dst,src -j MASQUERADE
-m mark ! --mark 0x4000/0x4000 -j RETURN
-j MARK --set-xmark 0x4000/0x0
-p tcp -m comment --comment "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose" -m set --match-set SET-LOOP-BACK dst,dst,src -j MASQUERADE --to-ports 32768-65535
-p tcp -j MASQUERADE --to-ports 32768-65535 --random-fully
-p udp -j MASQUERADE --to-ports 32768-65535 --random-fully
-p sctp -j MASQUERADE --to-ports 32768-65535 --random-fully
-p tcp -j MASQUERADE --to-ports 32768-65535
-p udp -j MASQUERADE --to-ports 32768-65535
-p sctp -j MASQUERADE --to-ports 32768-65535
-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`},
	{"nat", "KUBE-SEP-SXIVWICOYRO3J4NJ", `-s EP -m comment --comment "ns1/svc1:p80" -j KUBE-MARK-MASQ
-p tcp -m comment --comment "ns1/svc1:p80" -m recent --set --name KUBE-SEP-SXIVWICOYRO3J4NJ --mask ALLONES --rsource -m tcp -j DNAT --to-destination EPPORT`},
	{"nat", "KUBE-SVC-XPGD46QRK7WJZT7O", `! -s NET -d VIP -p tcp -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ
-m comment --comment "ns1/svc1:p80 -> EPPORT" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-SXIVWICOYRO3J4NJ --mask ALLONES --rsource -j KUBE-SEP-SXIVWICOYRO3J4NJ
-m comment --comment "ns1/svc1:p80 -> EPPORT" -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-SXIVWICOYRO3J4NJ
-m comment --comment "ns1/svc1:p80 -> EPPORT" -j KUBE-SEP-SXIVWICOYRO3J4NJ`},
	{"nat", "KUBE-EXT-XPGD46QRK7WJZT7O", `-m comment --comment "masquerade LOCAL traffic for ns1/svc1:p80 external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
-m comment --comment "only a comment"
-j KUBE-SVC-XPGD46QRK7WJZT7O`},
	{"filter", "KUBE-PROXY-FIREWALL", `-m comment --comment "Kubernetes service load balancer ip + port for load balancer with sourceRange" -m set --match-set SET-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL`},
	{"filter", "KUBE-SOURCE-RANGES-FIREWALL", `-m comment --comment "Kubernetes service load balancer ip + port + source cidr for packet filter purpose" -m set --match-set SET-LOAD-BALANCER-SOURCE-CID dst,dst,src -j RETURN
-j DROP`},
	{"filter", "KUBE-FORWARD", `-m conntrack --ctstate INVALID -j DROP
-m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`},
	{"filter", "KUBE-NODE-PORT", `-m comment --comment "Kubernetes health check node port" -m set --match-set SET-HEALTH-CHECK-NODE-PORT dst -j ACCEPT`},
	{"filter", "KUBE-IPVS-FILTER", `-m set --match-set SET-NO-LOCAL dst,dst -m conntrack --ctstate NEW -j DROP
-m set --match-set SET-LOAD-BALANCER-FW dst,dst -m set ! --match-set SET-LOAD-BALANCER-SOURCE-CID dst,dst,src -m set ! --match-set SET-LOAD-BALANCER-SOURCE-IP dst,dst,src -j DROP
-m conntrack --ctstate DNAT -j RETURN
-m set --match-set SET-LOAD-BALANCER dst,dst -j RETURN
-m set --match-set SET-HEALTH-CHECK-NODE-PORT dst -j RETURN
-d VIP -p ICMP -j ACCEPT
-m conntrack --ctstate NEW -m set --match-set SET-IPVS-IPS dst -j REJECT --reject-with UNREACH`},
	{"filter", "KUBE-IPVS-OUT-FILTER", ""},
	{"filter", "KUBE-IPVS-ACCEPT", `-m conntrack --ctstate DNAT -m set --match-set SET-NODE-PORT-IPS dst -j ACCEPT`},
	{"filter", "KUBE-FIREWALL", `! -s LO -d LO -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`},
	{"filter", "KUBE-EXTERNAL-SERVICES", `-d VIP -p udp -m comment --comment "ns1/svc1:dns has no endpoints" -m udp --dport 53 -j REJECT --reject-with UNREACH
-p tcp -m comment --comment "ns1/svc1:p80 has no local endpoints" -m addrtype --dst-type LOCAL -m tcp --dport 30080 -j DROP`},
	{"mangle", "KUBE-IPVS-OUT-FILTER", `-m set --match-set SET-LOAD-BALANCER-FW dst,dst -m set ! --match-set SET-LOAD-BALANCER-SOURCE-CID dst,dst,src -m set ! --match-set SET-LOAD-BALANCER-SOURCE-IP dst,dst,src -j DROP
-m set --match-set SET-NO-LOCAL dst,dst -m set --match-set SET-CLUSTER-IP dst,dst -j DROP`},
	{"mangle", "KUBE-DIRECT", `-m comment --comment "Kubernetes service address from which endpoints answer themselves" -m set --match-set SET-IPVS-IPS dst -j MARK --set-xmark 0x1000/0x1000`},
	{"mangle", "KUBE-DIRECT-MSS", `! -p tcp -j RETURN
-m set ! --match-set SET-IPVS-IPS src -j RETURN
-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK -m tcpmss --mss 1420:1439 -j TCPMSS --set-mss 1400`},
	{"mangle", "KUBE-MARK", `-d VIP -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x4001/0xffffffff
-m mark --mark 0x1 -j MARK --set-xmark 0x0/0x4000`},
	{"mangle", "KUBE-PROXY-CANARY", ""},
}

var shapeWords = map[rules.Family]*strings.Replacer{
	rules.IPv4: strings.NewReplacer("SET-", "KUBE-", "LO ", "127.0.0.0/8 ", "NET", "10.244.0.0/16", "VIP", "10.96.0.10/32",
		"EPPORT", "10.180.0.1:80", "EP ", "10.180.0.1/32 ", "UNREACH", "icmp-port-unreachable",
		"ALLONES", "255.255.255.255", "ICMP", "icmp"),
	rules.IPv6: strings.NewReplacer("SET-", "KUBE-6-", "LO ", "::1/128 ", "NET", "fd00:10:244::/48", "VIP", "fd00:10:96::a/128",
		"EPPORT", "[fd00:10:180::1]:80", "EP ", "fd00:10:180::1/128 ", "UNREACH", "icmp6-port-unreachable",
		"ALLONES", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ICMP", "ipv6-icmp"),
}

// Shapes returns chains with every form of rule the project writes, for the
// given families, in canonical form.
func Shapes(families ...rules.Family) map[rules.ChainKey]rules.Chain {
	out := map[rules.ChainKey]rules.Chain{}
	for _, f := range families {
		for _, s := range shapes {
			key := rules.ChainKey{Family: f, Table: s.table, Name: s.name}
			out[key] = rules.Chain{Rules: shapeWords[f].Replace(s.rules)}
		}
	}
	return out
}

// Sets lists the ipsets that Shapes refers to, name to type.
func Sets(f rules.Family) map[string]string {
	out := map[string]string{}
	for _, s := range shapes {
		for line := range lines(shapeWords[f].Replace(s.rules)) {
			words := rules.Words(line)
			for i, w := range words {
				if w == "--match-set" {
					out[words[i+1]] = setType(words[i+1], words[i+2])
				}
			}
		}
	}
	return out
}

// setType follows from how the set is asked.
func setType(name, flags string) string {
	switch {
	case strings.HasSuffix(name, "-IPVS-IPS"), strings.HasSuffix(name, "-PORT-IPS"):
		return "hash:ip"
	case flags == "dst":
		return "bitmap:port"
	case flags == "dst,dst,src" && strings.HasSuffix(name, "-CID"):
		return "hash:ip,port,net"
	case flags == "dst,dst,src":
		return "hash:ip,port,ip"
	}
	return "hash:ip,port"
}
