#!/usr/bin/env bash
# profile.sh: profiles of the real program at start, during churn and at rest, with N Services of ten endpoints each in a directory of
# manifests: CPU, heap, waits ("block") and a trace of each phase, in bin/profile. In a network namespace of this machine if its kernel
# has IPVS, else in a throw-away VM, where everything takes ten to twenty times as long and system calls more than that.
#
#   e2e/profile.sh                        N=10000, ten seconds of churn and ten of rest
#   N=1000 T=5 e2e/profile.sh             fewer Services, five seconds
#   MODE=iptables e2e/profile.sh          iptables mode; on this machine if its kernel has iptables
#
# The program serves its profiles itself, with --profiling. Its port opens before the first manifest is read, so the CPU profile of the
# start lacks only the first moments.
set -euo pipefail

say() { printf 'profile: %s\n' "$*"; }

services=${N:-10000}
period=${T:-10}
mode=${MODE:-ipvs}
changes=20 # a second, during churn
phases=(start churn idle)

for number in "$services" "$period"; do
	case $number in
	'' | *[!0-9]* | 0*)
		echo "profile: N and T are whole numbers, not '$number'" >&2
		exit 2
		;;
	esac
done

# ---- where the program runs

work=/run/profile
pprof=http://127.0.0.1:10249/debug/pprof
agent='' churner=''

# service I LAST: the manifests of Service I, whose last endpoint ends in LAST.
service() {
	awk -v i="$1" -v last="$2" -v n=1 "$manifest"
}

# manifest prints n Services with slices of ten endpoints as JSON, from number i on.
# shellcheck disable=SC2016 # a program of awk
manifest='BEGIN {
	for (; n > 0; n--) {
		printf "{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"s%d\",\"namespace\":\"profile\"},\"spec\":{\"clusterIP\":\"10.%d.%d.%d\",\"ports\":[{\"port\":80}]}}\n",
			i, 96 + int(i / 65536), int(i / 256) % 256, i % 256
		printf "{\"apiVersion\":\"discovery.k8s.io/v1\",\"kind\":\"EndpointSlice\",\"metadata\":{\"name\":\"s%d\",\"namespace\":\"profile\",\"labels\":{\"kubernetes.io/service-name\":\"s%d\"}},\"addressType\":\"IPv4\",\"ports\":[{\"name\":\"\",\"port\":8080}],\"endpoints\":[", i, i
		for (e = 0; e < 10; e++)
			printf "%s{\"addresses\":[\"10.%d.%d.%d\"],\"nodeName\":\"node-%d\"}", e ? "," : "",
				128 + int(i / 4096), int(i / 16) % 256, (i % 16) * 16 + (e < 9 ? e : last), e
		print "]}"
		i++
	}
}'

# make_manifests writes a hundred Services to a file, and twenty that will change to one each.
make_manifests() {
	mkdir -p "$work/manifests"
	local i
	for ((i = 0; i < 20 && i < services; i++)); do
		service "$i" 9 >"$work/manifests/changing-$i.json"
	done
	for (( ; i < services; i += 100)); do
		awk -v i="$i" -v last=9 -v n=$((services - i < 100 ? services - i : 100)) "$manifest" >"$work/manifests/$i.json"
	done
}

# churn replaces one endpoint of one of the twenty Services, again and again.
churn() {
	local i turn
	for ((turn = 0; ; turn++)); do
		i=$((turn % 20))
		if [ "$i" -lt "$services" ]; then
			service "$i" $((10 + turn / 20 % 6)) >"$work/changing"
			mv "$work/changing" "$work/manifests/changing-$i.json"
		fi
		sleep "$(awk -v n="$changes" 'BEGIN { print 1 / n }')"
	done
}

running() {
	kill -0 "$agent" 2>/dev/null && return
	tail -n 20 "$work/agent.log" >&2
	say 'the agent ended by itself' >&2
	return 1
}

in_time() {
	[ "$SECONDS" -lt "$1" ] && return
	say 'the start took too long' >&2
	return 1
}

synced() { grep -q 'first sync is complete' "$work/agent.log"; }

# fetch PAGE FILE [SECONDS]: one profile.
fetch() { curl -sSf --max-time $((${3:-0} + 120)) -o "$work/out/$2" "$pprof/$1${3:+?seconds=$3}"; }

# at_start takes CPU profiles, one behind the other, until the first sync is done. The trace of the first seconds is taken meanwhile, and
# its own cost is in the profile.
at_start() {
	local deadline=$((SECONDS + 900)) part=0 trace
	until curl -sf -o /dev/null http://127.0.0.1:10249/healthz; do
		running
		in_time "$deadline"
		sleep 0.02
	done
	fetch trace start.trace 5 &
	trace=$!
	while
		fetch profile "start.cpu.$part" 2
		! synced
	do
		running
		in_time "$deadline"
		part=$((part + 1))
	done
	wait "$trace"
	fetch block start.block
	fetch heap start.heap
}

# during PHASE: all profiles of one period; waits are those of the period. The trace comes after it, as tracing costs processor time.
during() {
	local waits
	fetch block "$1.block" "$period" &
	waits=$!
	fetch profile "$1.cpu.0" "$period"
	wait "$waits"
	fetch heap "$1.heap"
	fetch trace "$1.trace" $((period < 5 ? period : 5))
}

leave() {
	set +e
	local pid
	for pid in $churner $agent; do
		kill "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
}

# inside is what happens in the namespace or in the VM.
inside() {
	trap leave EXIT
	make_manifests
	say "$services Services in a directory of manifests; $mode mode"
	kube-ipvs --proxy-mode="$mode" --source-dir "$work/manifests" --hostname-override node-a --cluster-cidr 10.128.0.0/9 --profiling 2>"$work/agent.log" &
	agent=$!
	say 'start ...'
	at_start
	say "churn: $changes changes a second at most ..."
	churn &
	churner=$!
	during churn
	kill "$churner"
	wait "$churner" 2>/dev/null || true
	churner=''
	sleep 2 # what the last changes began may end
	say 'idle ...'
	during idle
	running
	cp "$work/agent.log" "$work/out/agent.log"
}

# ---- this machine

# top prints the five functions that a CPU profile is made of most.
top() {
	go tool pprof -top -nodecount=5 bin/kube-ipvs "$1" 2>/dev/null | awk '/^Duration/ || /^ / { print "  " $0 }'
}

# show merges the CPU profiles of each phase, prints its hottest functions, and says where everything is.
show() {
	local phase
	for phase in "${phases[@]}"; do
		go tool pprof -proto -output "$out/$phase.cpu" bin/kube-ipvs "$out/$phase".cpu.[0-9]* >/dev/null 2>&1
		rm -f "$out/$phase".cpu.[0-9]*
		printf '\n%s, CPU:\n' "$phase"
		top "$out/$phase.cpu"
	done
	printf '\n'
	for phase in "${phases[@]}"; do
		say "$phase: $out/$phase.cpu $out/$phase.heap $out/$phase.block (go tool pprof -http=: FILE), $out/$phase.trace (go tool trace FILE)"
	done
	say "the agent's log: $out/agent.log"
}

outside() {
	cd "$(dirname "${BASH_SOURCE[0]}")/.."
	out=bin/profile
	rm -rf "$out"
	mkdir -p "$out"
	say 'building kube-ipvs and the runner'
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/kube-ipvs ./e2e/vm/vmrun
	if [ "$(bin/vmrun -need "$mode" -where 2>/dev/null)" = vm ]; then
		e2e/install.sh vm
	else
		e2e/install.sh tools
	fi
	bin/vmrun -auto -need "$mode" -timeout 40m -copy bin/kube-ipvs:$work/bin/kube-ipvs -copy e2e/profile.sh:$work/profile.sh -share "$PWD/$out:$work/out:rw" \
		-env "N=$services" -env "T=$period" -env "MODE=$mode" -- bash -c "PATH=$work/bin:\$PATH exec bash $work/profile.sh inside"
	show
}

case ${1:-} in
inside) inside ;;
'') outside ;;
*)
	sed -n '2,/^set /{/^#/p}' "${BASH_SOURCE[0]}"
	exit 2
	;;
esac
