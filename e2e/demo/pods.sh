# pods.sh: the node's pods, each a network namespace with one server in it. Sourced by run.sh.
# shellcheck shell=bash

node_ipv4=10.244.0.1 node_ipv6=fd00:10:244::1 # the node's own addresses among its pods

# name, last part of both addresses, what it serves
pods='
web-1    11  -http :8080
web-2    12  -http :8080
web-3    13  -http :8080
web-4    14  -http :8080
dns-1    21  -udp :53 -tcp :53
dns-2    22  -udp :53 -tcp :53
cache-1  31  -tcp :6379
cache-2  32  -tcp :6379
'

# each_pod calls a function with the fields of every pod.
each_pod() {
	local name number listen
	while read -r name number listen; do
		if [ -n "$name" ]; then
			"$1" "$name" "$number" "$listen"
		fi
	done <<<"$pods"
}

# node_side prints the node's end of a pod's cable for "ip -batch". Pods are routed, not bridged, so that replies between two of
# them pass the node's IP layer, where their addresses are translated back, also on a host that cannot filter bridges.
node_side() {
	cat <<-IP
		netns add $1
		link add veth-$1 type veth peer name eth0 netns $1
		address add $node_ipv4/32 dev veth-$1
		address add $node_ipv6/128 dev veth-$1 nodad
		address add fe80::1/64 dev veth-$1 nodad
		link set veth-$1 up
		route add 10.244.0.$2/32 dev veth-$1 src $node_ipv4
		route add fd00:10:244::$2/128 dev veth-$1 src $node_ipv6
	IP
}

# pod_side prints the other end.
pod_side() {
	cat <<-IP
		link set lo up
		link set eth0 up
		address add 10.244.0.$2/32 dev eth0
		address add fd00:10:244::$2/128 dev eth0 nodad
		route add $node_ipv4/32 dev eth0
		route add default via $node_ipv4 dev eth0
		route add default via fe80::1 dev eth0
	IP
}

connect_pod() { pod_side "$1" "$2" | ip -netns "$1" -batch -; }

start_server() {
	# shellcheck disable=SC2086 # several words
	ip netns exec "$1" backend serve -name "$1" $3 >"servers/$1" 2>&1 &
	servers+=($!)
}

all_ready() { [ "$(cat servers/* | grep -c ready)" -eq "${#servers[@]}" ]; }

# Service addresses that nothing serves lead nowhere. Without these routes they would follow the default route out of the node.
service_ranges() {
	cat <<-IP
		route add unreachable 10.96.0.0/16
		route add unreachable fd00:10:96::/112
	IP
}

# start_pods makes the namespaces and starts the servers; it returns when all of them listen.
start_pods() {
	servers=()
	mkdir -p servers
	service_ranges | ip -batch - || return 1
	each_pod node_side | ip -batch - || return 1
	each_pod connect_pod || return 1
	each_pod start_server
	within 60 all_ready
}

remove_namespace() { ip netns del "$1" 2>/dev/null; }

# stop_pods removes what start_pods made; deleting a namespace takes both ends of its cable along.
stop_pods() {
	[ "${#servers[@]}" -eq 0 ] || kill "${servers[@]}" 2>/dev/null
	each_pod remove_namespace
	ip route del unreachable 10.96.0.0/16 2>/dev/null
	ip route del unreachable fd00:10:96::/112 2>/dev/null
}
