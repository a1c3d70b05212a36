# ipvs.sh: what the demo shows of ipvs mode, and how it asks the kernel. Sourced by run.sh.
# shellcheck shell=bash

mode_flags=${DEMO_RULES:+--rules=$DEMO_RULES}
if [ "${DEMO_RULES:-}" = nftables ]; then
	left_rules='nft list ruleset | grep -c kube-ipvs'
fi

prepare_node() { :; } # the addresses of Services become the node's own

# shared reports whether $out, lines of "uniq -c", shows the given total, equally shared by that many backends (give or take one).
shared() {
	awk -v total="$1" -v parts="$2" '
		{ sum += $1; if ($1 < int(total / parts) - 1) uneven = 1 }
		END { exit sum != total || NR != parts || uneven }' <<<"$out"
}

# serves reports whether new connections go to an address, by the kernel's own list and without starting a process.
serves() {
	local row
	hexadecimal row "$1"
	in_kernel "$row"
}

# hexadecimal is an address with the port of the web servers as the kernel lists it.
hexadecimal() {
	local a b c d
	IFS=. read -r a b c d <<<"$2"
	printf -v "$1" '%02X%02X%02X%02X:1F90' "$a" "$b" "$c" "$d"
}

# in_kernel finds a row in the kernel's own list; it is in hexadecimal.
in_kernel() {
	local rows
	mapfile -t rows </proc/net/ip_vs
	[[ ${rows[*]} == *"$1"* ]]
}

not_in_kernel() { ! in_kernel "$1"; }

# weight_zero reports whether a row takes no new connections, or is gone already.
weight_zero() {
	local rows
	mapfile -t rows </proc/net/ip_vs
	[[ ${rows[*]} != *"$1"* || ${rows[*]} =~ $1\ +Masq\ +0\  ]]
}

show_plan() {
	run "kube-ipvs plan --source-dir manifests --hostname-override node-a --show servers 2>/dev/null | grep -F $web"
	check 'kube-ipvs plan knows, without a kernel, what will be there' says '10.244.0.13:8080 -m -w 1'
}

show_kernel() {
	headline 'What it wrote: virtual servers, and their addresses on kube-ipvs0'
	run 'ipvsadm -Ln'
	check 'the kernel has five virtual servers' [ "$(grep -cE '^(TCP|UDP) ' <<<"$out")" -eq 5 ]
	check 'with twelve destinations' [ "$(grep -cE '^  -> .*Masq +1 ' <<<"$out")" -eq 12 ]
	run 'ip address show kube-ipvs0'
	check 'the Service addresses of both families are bound' [ "$(grep -cE 'inet6? (10.96|fd00:10:96)' <<<"$out")" -eq 4 ]
	if [ "${DEMO_RULES:-}" = nftables ]; then
		run 'nft list set ip kube-ipvs KUBE-CLUSTER-IP'
		check 'its sets are in nftables' says "$web \\. tcp \\. 80"
	fi
}

show_service() { run "ipvsadm -Ln --tcp-service $web:80"; }

show_small_write() {
	check 'one destination and its hairpin entry were written' says '"rows": \[\{"table": "members", "adds": 1\}, \{"table": "destinations", "adds": 1\}\]'
}

show_leaving() {
	note 'And one pod goes. What it has begun may end: no new connections, until the old ones are over or five seconds are (kube-ipvs.io/drain):'
	follow "sed -i '/10.244.0.11/d' manifests/web-endpoints.yaml" weight_zero 0AF4000B:1F90
	run "curl -s 'http://$web/[1-100]' | cut -d' ' -f1 | sort | uniq -c" bars
}

show_left() {
	within 60 not_in_kernel 0AF4000B:1F90 || broken 'the pod that went is still in the kernel'
	run "ipvsadm -Ln --tcp-service $web:80"
	check 'it is out of the kernel' [ "$(grep -cF 10.244.0.11: <<<"$out")" -eq 0 ]
}

show_clean() {
	run 'ipvsadm -Ln'
	check 'no virtual server is left' [ "$(wc -l <<<"$out")" -eq 3 ]
	run_refused 'ip link show kube-ipvs0'
	check 'the device is gone' says 'does not exist'
}
