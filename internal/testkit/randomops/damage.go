package randomops

// damages are commands that another program on the node might run, by the active mode.
var damages = map[string][]string{
	modeIPVS: {
		"ipvsadm -D -t 10.96.0.1:80", "ipvsadm -C", "ipvsadm -E -t 10.96.0.2:80 -s lc",
		"ipvsadm -a -t 10.96.0.1:80 -r 10.9.9.9:80 -m", "ipvsadm -d -t 10.96.0.1:80 -r 10.244.1.5:8080",
		"ipvsadm -E -t 192.0.2.1:30001 -s lc", "ipvsadm -D -t 192.0.2.2:30001", "ipvsadm -D -u 203.0.113.1:53",
		"ipset flush KUBE-LOAD-BALANCER-FW", "ipset flush KUBE-LOAD-BALANCER-SOURCE-CIDR", "ipset flush KUBE-NO-LOCAL",
		"ipset flush KUBE-DETOUR", "ipset add KUBE-NODE-PORT-IPS 10.9.9.9", "ipset add KUBE-NODE-PORT-LOCAL-TCP 999",
		"iptables -t nat -F KUBE-DETOUR-TO", "iptables -t mangle -F", "ip addr del 203.0.113.1/32 dev kube-ipvs0",
		"ipset flush KUBE-CLUSTER-IP", "ipset add KUBE-CLUSTER-IP 10.9.9.9,tcp:80", "ipset del KUBE-IPVS-IPS 10.96.0.2",
		"iptables -t nat -F", "iptables -t nat -F KUBE-SERVICES", "ip6tables -t filter -F KUBE-IPVS-FILTER",
		"ip addr del 10.96.0.1/32 dev kube-ipvs0", "ip addr add 10.96.0.3/32 dev kube-ipvs0", "ip link del kube-ipvs0",
		"ip route del local 10.96.0.0/16 dev lo proto 73", "ip route add local 10.97.0.0/16 dev lo proto 73",
	},
	modeIPTables: {
		"iptables -t nat -F", "ip6tables -t nat -F", "iptables -t filter -F", "ip6tables -t filter -F", "iptables -t mangle -X KUBE-PROXY-CANARY",
		"iptables -t nat -F KUBE-SERVICES", "iptables -t nat -F KUBE-NODEPORTS", "iptables -t filter -F KUBE-EXTERNAL-SERVICES",
		"iptables -t filter -F KUBE-PROXY-FIREWALL", "iptables -t nat -N KUBE-SEP-AAAAAAAAAAAAAAAA", "iptables -t nat -N KUBE-SVC-AAAAAAAAAAAAAAAA",
		"iptables -t nat -A KUBE-SERVICES -p tcp -j RETURN", "iptables -t nat -A KUBE-SERVICES -d 10.9.9.9/32 -j KUBE-MARK-MASQ",
		"iptables -t nat -A KUBE-NODEPORTS -p udp -j KUBE-MARK-MASQ", "ip6tables -t filter -A KUBE-SERVICES -p udp -j DROP",
		"iptables -t nat -A KUBE-POSTROUTING -j RETURN", "iptables -t filter -F KUBE-FORWARD", "iptables -t nat -F KUBE-MARK-MASQ",
	},
}

// marks are the damages that take away entries that tell whose a virtual server is.
var marks = []string{"ipset flush KUBE-CLUSTER-IP", "ipset del KUBE-IPVS-IPS 10.96.0.2"}

// foreign are commands by which another program adds rows of all kinds to the kernel. They can be
// repeated: a damage that flushes a table is followed by them.
var foreign = []string{
	"ipvsadm -A -t 198.51.100.77:80 -s wlc", "ipvsadm -a -t 198.51.100.77:80 -r 198.51.100.78:80 -m -w 3",
	"ipvsadm -A -u [2001:db8:77::1]:53 -s rr",
	"ipset create FOREIGN hash:ip family inet hashsize 1024 maxelem 65536", "ipset add FOREIGN 198.51.100.79",
	"ipset create KUBE-OTHER hash:ip,port family inet6 hashsize 1024 maxelem 65536", "ipset add KUBE-OTHER 2001:db8:77::2,tcp:80",
	"iptables -t nat -N FOREIGN", "iptables -t nat -F FOREIGN", "iptables -t nat -A FOREIGN -s 198.51.100.0/24 -j RETURN",
	"iptables -t nat -D PREROUTING -j FOREIGN", "iptables -t nat -A PREROUTING -j FOREIGN",
	"iptables -t filter -N KUBE-FIREWALL", "iptables -t filter -F KUBE-FIREWALL", "iptables -t filter -A KUBE-FIREWALL -s 198.51.100.0/24 -j DROP",
	"iptables -t filter -D INPUT -j KUBE-FIREWALL", "iptables -t filter -A INPUT -j KUBE-FIREWALL",
	"ip6tables -t filter -N FOREIGN", "ip6tables -t filter -F FOREIGN", "ip6tables -t filter -A FOREIGN -s 2001:db8:77::/48 -j DROP",
	"ip6tables -t filter -D INPUT -j FOREIGN", "ip6tables -t filter -A INPUT -j FOREIGN",
	"iptables -t mangle -N KUBE-KUBELET-CANARY",
}

// flushes reports whether a tool, as called by a damage, may also delete foreign rows.
func flushes(args []string) bool {
	switch args[0] {
	case "ipvsadm":
		return args[1] == "-C"
	case "iptables", "ip6tables":
		return len(args) == 4 && args[3] == "-F"
	}
	return false
}
