# iptables.sh: what the demo shows of iptables mode, and how it asks the kernel. Sourced by run.sh.
# shellcheck shell=bash

mode_flags=--proxy-mode=iptables

# prepare_node gives the node a default route, as every node has one: what the host itself sends to a Service is routed before its
# destination is rewritten. No machine is at the other end of the route, and packets to the ranges of Services take it, too.
prepare_node() {
	service_ranges | sed 's/ add / del /' | ip -batch -
	ip link add uplink type veth peer name nowhere
	ip link set uplink up
	ip link set nowhere up
	ip route add default dev uplink
	ip -6 route add default dev uplink
}

# shared reports whether $out, lines of "uniq -c", shows the given total, and that many backends with a fair part: rules pick at random.
shared() {
	awk -v total="$1" -v parts="$2" '
		{ sum += $1; if ($1 < total / parts / 4) uneven = 1 }
		END { exit sum != total || NR != parts || uneven }' <<<"$out"
}

# web_chain is the chain of the web Service: its name is a hash of the Service's.
web_chain() { iptables-save -t nat | grep -F -- "-d $web/32" | grep -oE 'KUBE-SVC-[A-Z0-9]+' | head -n 1; }

# serves reports whether new connections go to an address.
serves() {
	local end
	end=$(iptables-save -t nat | grep -F -- "--to-destination $1:8080" | grep -oE 'KUBE-SEP-[A-Z0-9]+') || return 1
	iptables -t nat -S "$(web_chain)" | grep -F "$end" >/dev/null # with -q iptables is killed while it prints
}

serves_not() { ! serves "$1"; }

show_plan() {
	run "kube-ipvs plan $mode_flags --source-dir manifests --hostname-override node-a 2>/dev/null | grep -F $web/32"
	check 'kube-ipvs plan knows, without a kernel, what will be there' says '-d 10.96.10.80/32 .*--dport 80 -j KUBE-SVC-'
}

show_kernel() {
	headline 'What it wrote: a rule for each Service address, a chain for each Service, a chain for each pod'
	run 'iptables -t nat -S KUBE-SERVICES'
	check 'every port of the Services is there' [ "$(grep -c -- '-j KUBE-SVC-' <<<"$out")" -eq 4 ]
	show_service
	check 'three pods, each as likely as the others' [ "$(grep -c -- '-j KUBE-SEP-' <<<"$out")" -eq 3 ]
}

show_service() { run "iptables -t nat -S $(web_chain)"; }

show_small_write() {
	check 'the chains of the Service and of the new pod were written' says '"rows": \[\{"table": "chains", "adds": 1, "updates": 1\}\]'
}

show_leaving() {
	note 'And one pod goes: new connections go elsewhere at once, what it has begun goes on.'
	follow "sed -i '/10.244.0.11/d' manifests/web-endpoints.yaml" serves_not 10.244.0.11
	run "curl -s 'http://$web/[1-100]' | cut -d' ' -f1 | sort | uniq -c" bars
}

show_left() {
	attempt 'iptables-save -t nat | grep -cF 10.244.0.11' || true
	note "$out"
	check 'nothing in the rules names it any more' [ "$out" = 0 ]
}

show_clean() { :; }
