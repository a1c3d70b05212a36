# What the project's tests expect of a guest, one line of output each: "ok NAME" or "not ok NAME: what was said".
# Ends with status 7, to show that a status arrives.

check() {
	local name=$1 said
	shift
	if said=$("$@" 2>&1); then
		echo "ok $name"
	else
		echo "not ok $name: ${said//$'\n'/ | }"
	fi
}

# matches FLAVOUR: the matches and targets that the rules of a Service use.
matches() {
	local tool=$1 family=$2 set=$3
	check "$tool set" "$tool" -A INPUT -m set --match-set "$set" dst,dst -j ACCEPT
	check "$tool addrtype" "$tool" -A INPUT -m addrtype --dst-type LOCAL -j ACCEPT
	check "$tool physdev" "$tool" -A FORWARD -m physdev ! --physdev-is-bridged -j ACCEPT
	check "$tool comment" "$tool" -A INPUT -m comment --comment "two words" -j ACCEPT
	check "$tool conntrack" "$tool" -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
	check "$tool ipvs" "$tool" -A INPUT -m ipvs --ipvs -j ACCEPT
	check "$tool mark and masquerade" "$tool" -t nat -A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully
	check "$tool reject" "$tool" -A INPUT -p tcp --dport 1 -j REJECT --reject-with "$family"
}

# every_set_type FAMILY ADDRESS NET
every_set_type() {
	check "ipset hash:ip $1" ipset create "ip-$1" hash:ip family "$1"
	check "ipset hash:ip,port $1" ipset create "ip-port-$1" hash:ip,port family "$1"
	check "ipset hash:ip,port,ip $1" ipset create "ip-port-ip-$1" hash:ip,port,ip family "$1"
	check "ipset hash:ip,port,net $1" ipset create "ip-port-net-$1" hash:ip,port,net family "$1"
	check "ipset add $1" ipset add "ip-$1" "$2"
	check "ipset add ip,port $1" ipset add "ip-port-$1" "$2,tcp:80"
	check "ipset add ip,port,ip $1" ipset add "ip-port-ip-$1" "$2,sctp:80,$2"
	check "ipset add ip,port,net $1" ipset add "ip-port-net-$1" "$2,udp:80,$3"
}

check "plain iptables is $1" grep -q "$2" <<<"$(iptables -V)"
check "no link but lo and eth0" test "$(ls /sys/class/net | tr '\n' ' ')" = "eth0 lo "
check "dummy link" ip link add kube-ipvs0 type dummy
for algorithm in rr wrr lc wlc lblc lblcr sh dh sed nq mh fo ovf; do
	check "scheduler $algorithm" ipvsadm -A -t "10.0.0.1:$((++port))" -s "$algorithm"
done
check "scheduler on IPv6" ipvsadm -A -u "[fd00::1]:53" -s rr
check "ipset bitmap:port" ipset create port bitmap:port range 0-65535
every_set_type inet 10.0.0.1 10.1.0.0/16
every_set_type inet6 fd00::1 fd01::/64
for flavour in nft legacy; do
	matches "iptables-$flavour" icmp-port-unreachable ip-port-inet
	matches "ip6tables-$flavour" icmp6-port-unreachable ip-port-inet6
done
check "nft list" nft list ruleset
check "conntrack list" conntrack -L
check "strace" strace -c -f -o /dev/null true
check "curl" curl --version
check "ping" ping -c 1 -W 5 127.0.0.1
check "standard error can be opened" bash -c 'echo x >/dev/stderr'
check "read-only share" bash -c '[ "$(cat /src/guest.sh | head -c 2)" = "# " ] && ! touch /src/x'

# The output must arrive while the command runs: the test answers the ping by making a file.
echo "ping"
answered() {
	local i
	for ((i = 0; i < 300; i++)); do
		[ ! -e /run/out/pong ] || return 0
		sleep 0.1
	done
	echo "no answer"
	return 1
}
check "output streams" answered
echo result >/run/out/result

# A process left behind must keep neither the output nor the guest open.
sleep 100000 &
exit 7
