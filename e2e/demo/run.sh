#!/usr/bin/env bash
# run.sh: the demo itself. It expects a network namespace or a machine of its own, root, and the programs kube-ipvs and backend in
# the PATH; e2e/demo.sh gives it all that. It checks what it shows, and its exit status says whether everything behaved.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=e2e/demo/stage.sh
. "$here/stage.sh"
# shellcheck source=e2e/demo/pods.sh
. "$here/pods.sh"
mode=${DEMO_MODE:-ipvs}
left_rules='{ iptables-save; ip6tables-save; ipset list -n; } | grep -c KUBE' # what cleanup must not leave
# shellcheck source=e2e/demo/ipvs.sh
. "$here/$mode.sh"

web=10.96.10.80 web6='[fd00:10:96::1080]' dns=10.96.0.10
cidrs=10.244.0.0/16,fd00:10:244::/56
agent='' stream='' # process ids
dirty=             # set while the kernel may hold what an agent wrote

# leave runs however the demo ends: nothing is left behind, not even where there is no namespace to go away with.
leave() {
	set +e
	local pid
	for pid in $agent $stream; do
		kill "$pid" 2>/dev/null && wait "$pid"
	done
	if [ -n "$dirty" ]; then
		kube-ipvs cleanup >/dev/null 2>&1
	fi
	stop_pods
	rm -rf "$work"
}

# start_agent returns when the agent has brought the kernel in line with the manifests.
start_agent() {
	command_line "kube-ipvs ${mode_flags:+$mode_flags }--source-dir manifests --hostname-override node-a --cluster-cidr $cidrs 2>agent.log &"
	: >agent.log # the words of the agent before would be taken for those of this one
	# shellcheck disable=SC2086 # several flags, or none
	kube-ipvs $mode_flags --source-dir manifests --hostname-override node-a --cluster-cidr "$cidrs" 2>agent.log &
	agent=$! dirty=yes
	within 60 synced || broken 'the agent did not finish its first sync'
}

# synced ends the demo at once when the agent is gone.
synced() {
	kill -0 "$agent" 2>/dev/null || broken 'the agent ended by itself'
	grep -q 'first sync is complete' agent.log
}

# stop_agent ends the agent and looks at how it ended.
stop_agent() {
	local begun ended status=0
	command_line "kill -TERM $agent; wait $agent; echo \$?"
	now_ms begun
	kill -TERM "$agent"
	wait "$agent" || status=$?
	now_ms ended
	note "$status"
	check 'the agent ended without an error' [ "$status" -eq 0 ]
	check "it took $((ended - begun)) ms, two seconds are allowed" [ $((ended - begun)) -lt 2000 ]
	agent=''
}

# says reports whether the last output matches an extended regular expression.
says() { grep -Eq -e "$1" <<<"$out"; }

show_manifests() {
	headline 'The manifests: ordinary Kubernetes objects in a directory'
	run 'ls manifests'
	run 'cat manifests/web.yaml'
	run 'head -n 17 manifests/web-endpoints.yaml'
	show_plan
}

show_pods() {
	headline 'The node: eight pods, each a network namespace with one small server'
	start_pods || broken "the pods did not start: $(cat servers/*)"
	run 'ip netns exec web-1 ip -brief address show eth0'
	run 'curl -s http://10.244.0.11:8080/'
	check 'a server says its name, where it was reached and by whom' says '^web-1 local=10.244.0.11:8080 client=10.244.0.1:'
	run_refused "curl -sS http://$web/"
	check 'no proxy serves the Service yet' says 'curl: \(7\)'
}

show_start() {
	headline 'The agent starts'
	prepare_node
	start_agent
	run "cut -c12- agent.log | grep -E 'starting|manifests read|skipped|kernel updated|first sync'"
	check 'the first sync is done' says 'first sync is complete'
}

show_distribution() {
	headline 'A hundred requests to the Service'
	run "curl -s 'http://$web/[1-100]' | cut -d' ' -f1 | sort | uniq -c" bars
	check 'all were answered, shared by the three backends' shared 100 3
	note ''
	note 'Over IPv6:'
	run "curl -s 'http://$web6/[1-100]' | cut -d' ' -f1 | sort | uniq -c" bars
	check 'all were answered, shared by the three backends' shared 100 3
	note ''
	note 'UDP, each datagram from a socket of its own:'
	run "backend ask -proto udp -n 50 -timeout 5s $dns:53"
	check 'two servers answered fifty times' [ "$(awk '/backend +dns-[12] / { n += $3; servers++ } END { print n, servers }' <<<"$out")" = '50 2' ]
}

show_clients() {
	headline 'Clients: the node, another pod, a pod that connects to itself'
	run "curl -s http://$web/"
	check "from the node: it appears with its address among the pods, $node_ipv4" says "client=$node_ipv4:"
	run "ip netns exec cache-1 curl -s http://$web/"
	check 'from a pod: the backend sees the real client' says 'client=10.244.0.31:'
	# Sixty requests: a backend may be picked at random, and each has to turn up.
	run "ip netns exec web-1 curl -s 'http://$web/[1-60]' | sed 's/:[0-9]*$//' | sort | uniq -c"
	check 'a pod reaches itself through the Service, by way of the node' says "web-1 .*client=$node_ipv4$"
	check 'and its neighbours as itself' says 'web-[23] .*client=10.244.0.11$'
}

# follow edits a manifest and waits until a predicate about the kernel holds.
follow() {
	local edit=$1 begun ended
	shift
	cp manifests/web-endpoints.yaml before.yaml
	run "$edit"
	now_ms begun
	within 30 "$@" || broken 'the kernel did not follow the edit'
	now_ms ended
	attempt 'diff -U0 before.yaml manifests/web-endpoints.yaml' || true
	sed 1,2d <<<"$out"
	show_service
	check "the kernel followed $((ended - begun)) ms after the edit" [ $((ended - begun)) -lt 30000 ]
	run 'cut -c12- agent.log | grep "kernel updated" | tail -n 1'
}

show_edit() {
	headline 'Manifests are edited, the kernel follows'
	follow "sed -i '/10.244.0.13/a - {addresses: [10.244.0.14], nodeName: node-a, conditions: {ready: true}}' manifests/web-endpoints.yaml" \
		serves 10.244.0.14
	show_small_write
	run "curl -s 'http://$web/[1-100]' | cut -d' ' -f1 | sort | uniq -c" bars
	check 'the new pod takes its part' shared 100 4
	note ''
	show_leaving
	check 'three are left, and no request was lost' shared 100 3
	show_left
}

show_status() {
	headline 'What the agent knows about itself'
	run 'kube-ipvs show status'
	check 'nothing is pending' [ "$(awk '/^TABLE/ { table = 1; next } table { n += $3 + $4 } END { print n }' <<<"$out")" -eq 0 ]
}

written() { awk '/^TABLE/ { table = 1; next } table { n += $NF } END { print n + 0 }' <<<"$out"; }

show_restart() {
	headline 'The agent ends and comes back, under a stream of requests'
	command_line "backend ask -rate 20 -timeout 5s -stream $web:80 >stream.txt &"
	backend ask -rate 20 -timeout 5s -stream "$web:80" >stream.txt 2>&1 &
	stream=$!
	stop_agent
	run "curl -s 'http://$web/[1-30]' | cut -d' ' -f1 | sort | uniq -c" bars
	check 'the kernel carries the Service without the agent' [ "$(awk '{ n += $1 } END { print n }' <<<"$out")" -eq 30 ]
	start_agent
	run 'cut -c12- agent.log | grep -E "adopted|first sync"'
	run 'kube-ipvs show status'
	check "the restarted agent wrote $(written) rows: everything was in place" [ "$(written)" -eq 0 ]
	show_stream
}

show_stream() {
	local status=0
	command_line "kill -TERM $stream; cat stream.txt"
	kill -TERM "$stream"
	wait "$stream" || status=$?
	stream=''
	cat stream.txt
	check 'not one request of the stream failed' [ "$status" -eq 0 ]
}

show_cleanup() {
	headline 'Cleanup leaves nothing'
	stop_agent
	run 'kube-ipvs cleanup 2>/dev/null'
	show_clean
	run_refused "$left_rules"
	check 'no rule, chain or set is left' [ "$out" = 0 ]
	dirty=''
}

main() {
	if [ -z "${KUBE_IPVS_WHERE:-}" ]; then
		echo 'run.sh changes the network it runs in; use e2e/demo.sh, which gives it one of its own' >&2
		exit 2
	fi
	work=$(mktemp -d /run/kube-ipvs-demo.XXXXXX)
	servers=()
	trap leave EXIT
	cd "$work"
	mkdir manifests
	cp "$here"/*.yaml manifests/
	if grep -q 'QEMU TCG' /proc/cpuinfo; then
		note 'The CPU of this machine is emulated: times are ten to twenty times those of a real one.'
	fi
	show_manifests
	show_pods
	show_start
	show_kernel
	show_distribution
	show_clients
	show_edit
	show_status
	show_restart
	show_cleanup
	printf '\n%sAll %d steps behaved, in %d s.%s\n' "$green" "$steps" "$SECONDS" "$plain"
}

main "$@"
