#!/usr/bin/env bash
# test-vm.sh: the tests that need a kernel with IPVS, in a network namespace of this machine if its kernel has it, else in
# a throw-away VM. One boot for each group; the whole output of each goes to bin/vm-GROUP.log.
#
#   e2e/test-vm.sh                     all groups
#   e2e/test-vm.sh packet              one group
#   e2e/test-vm.sh packet TestAffinity  the tests of a group whose names match
#   OPS=500 e2e/test-vm.sh model        random walks, which are in no run of all groups
#
# Groups: runner (the VM runner itself), rooms (each kernel room's contract on the real kernel), scenarios (the files of
# e2e/scenarios with the real program), packet (client, node and backend namespaces, real packets), promotion (the same on a kernel
# that gets IPVS later, the same in a container that may load none, and what sets the clock of the machine; each of them alone).
# ACCEL=uml boots a newer kernel, which is a program, instead of the emulated one of the distribution: some minutes instead of many.
# KUBE_IPVS_E2E_MINUTES is how long the packet group may take, 43 if not set. RACE=1 builds all of it with the race
# detector: what it finds in a test or in an agent fails the test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/compile.sh

groups=(runner rooms scenarios packet promotion)
pattern=${2:-}
minutes=${KUBE_IPVS_E2E_MINUTES:-43}
if [ $# -gt 0 ]; then
	groups=("$1")
fi

say() { printf 'test-vm: %s\n' "$*"; }

# in_guest GROUP TIMEOUT COPY... -- COMMAND: runs the command where IPVS is; its output goes to the group's log.
in_guest() {
	local group=$1 timeout=$2 copies=() record=()
	if [ "$group" = model ]; then
		mkdir -p bin/walks
		record=(-share "$PWD/bin/walks:/run/kube-ipvs/walks:rw")
	fi
	shift 2
	while [ "$1" != -- ]; do
		copies+=(-copy "$1")
		shift
	done
	shift
	if [ -n "${KUBE_IPVS_E2E_RECORD:-}" ]; then
		mkdir -p e2e/recordings
		record+=(-share "$PWD/e2e/recordings:/run/kube-ipvs/recordings:rw" -env KUBE_IPVS_E2E_RECORD=/run/kube-ipvs/recordings)
	fi
	if [ -n "${KUBE_IPVS_E2E_SCRAPES:-}" ]; then
		rm -rf bin/scrapes
		mkdir -p bin/scrapes
		record+=(-share "$PWD/bin/scrapes:/run/kube-ipvs/scrapes:rw" -env KUBE_IPVS_E2E_SCRAPES=/run/kube-ipvs/scrapes)
	fi
	bin/vmrun -auto -accel "${ACCEL:-auto}" -timeout "$timeout" "${copies[@]}" "${record[@]}" -share "$PWD:/run/kube-ipvs/src" \
		-env KUBE_IPVS_BIN=/run/kube-ipvs/bin/kube-ipvs -env "KUBE_IPVS_E2E_MILLION=${KUBE_IPVS_E2E_MILLION:-}" \
		-env "KUBE_IPVS_E2E_KILLS=${KUBE_IPVS_E2E_KILLS:-}" -env "KUBE_IPVS_E2E_SOAK=${KUBE_IPVS_E2E_SOAK:-}" -env "KUBE_IPVS_E2E_SERVICES=${KUBE_IPVS_E2E_SERVICES:-}" -- "$@" >"bin/vm-$group.log"
}

# binary NAME PACKAGE: a test binary.
binary() { compile test -c -o "bin/$1.test" "$2"; }

# has_iptables: whether tests of rules run on this machine's own kernel, with both backends.
has_iptables() {
	unshare -n sh -c 'iptables-nft -t nat -S PREROUTING && iptables-legacy -t nat -S PREROUTING' >/dev/null 2>&1
}

runner() {
	KUBE_IPVS_VM=1 go test -count=1 -v ./e2e/vm/... >bin/vm-runner.log
}

rooms() {
	local copies=() script='set -u; failed=0' room
	local rooms=(internal/kernel/vserver internal/kernel/link internal/kernel/nftables internal/kernel/conntrack internal/kernel/capture ipset e2e/bench/limit)
	if [ -n "$pattern" ] || ! has_iptables; then
		rooms+=(internal/kernel/rules)
	else
		say "internal/kernel/rules: not in the VM, where each of its processes takes long; this kernel has iptables, and 'make race' runs it here"
	fi
	for room in "${rooms[@]}"; do
		binary "$(basename "$room")" "./$room"
		copies+=("bin/$(basename "$room").test:/run/kube-ipvs/bin/$(basename "$room").test")
		script+="; echo '# $room'; cd /run/kube-ipvs/src/$room; /run/kube-ipvs/bin/$(basename "$room").test -test.v -test.run '${pattern:-.}' || failed=1"
	done
	# Of a room that stands on others only what needs a kernel: the rest has run natively.
	binary ipvs ./internal/dataplane/ipvs
	copies+=(bin/ipvs.test:/run/kube-ipvs/bin/ipvs.test)
	script+="; echo '# internal/dataplane/ipvs'; cd /run/kube-ipvs/src/internal/dataplane/ipvs; /run/kube-ipvs/bin/ipvs.test -test.v -test.run '${pattern:-TestOnKernel}' || failed=1"
	in_guest rooms "$(patience 20)m" "${copies[@]}" -- bash -c "$script; exit \$failed"
}

scenarios() {
	local minutes
	minutes=$(patience 23)
	binary scenarios ./e2e/scenarios
	in_guest scenarios "$((minutes + 2))m" bin/kube-ipvs:/run/kube-ipvs/bin/kube-ipvs bin/scenarios.test:/run/kube-ipvs/bin/scenarios.test -- \
		bash -c "cd /run/kube-ipvs/src/e2e/scenarios && /run/kube-ipvs/bin/scenarios.test -test.v -test.timeout ${minutes}m -test.run '${pattern:-TestOnKernel|AcrossProcesses}'"
}

# model is bounded by MINUTES; a walk that has failed takes some more to become short.
model() {
	local minutes=${MINUTES:-10}
	binary scenarios ./e2e/scenarios
	in_guest model "$((minutes + 25))m" bin/kube-ipvs:/run/kube-ipvs/bin/kube-ipvs bin/scenarios.test:/run/kube-ipvs/bin/scenarios.test -- \
		bash -c "cd /run/kube-ipvs/src/e2e/scenarios && /run/kube-ipvs/bin/scenarios.test -test.v -test.timeout 0 -test.run '${pattern:-^TestModelOnKernel$}' \
			-ops ${OPS:-1000} -seed ${SEED:-0} -for ${minutes}m -keep /run/kube-ipvs/walks"
}

packet() {
	binary packet ./e2e/packet
	local skip='^(TestPromotion|TestRestrictedPodGetsModules|TestClockJumps)$'
	if [ -z "$pattern" ] && has_iptables; then
		skip+='|^TestIPTables'
		say "packet: TestIPTables... not in the VM: this kernel has iptables, and 'make e2e-iptables' runs them here"
	fi
	in_guest packet "$((minutes + 2))m" bin/kube-ipvs:/run/kube-ipvs/bin/kube-ipvs bin/packet.test:/run/kube-ipvs/bin/packet.test -- \
		bash -c "cd /run/kube-ipvs/src/e2e/packet && /run/kube-ipvs/bin/packet.test -test.v -test.timeout ${minutes}m -test.run '${pattern:-.}' -test.skip '$skip'"
}

promotion() {
	binary packet ./e2e/packet
	local tests=${pattern:-TestPromotion TestRestrictedPodGetsModules TestClockJumps}
	in_guest promotion 25m bin/kube-ipvs:/run/kube-ipvs/bin/kube-ipvs bin/packet.test:/run/kube-ipvs/bin/packet.test -- \
		bash -c "cd /run/kube-ipvs/src/e2e/packet && failed=0
			for test in $tests; do
				for try in {1..30}; do modprobe -r ip_vs_rr ip_vs && break; sleep 1; done
				[ \$test != TestClockJumps ] || modprobe -a ip_vs ip_vs_rr || failed=1
				KUBE_IPVS_E2E_CLOCK=1 /run/kube-ipvs/bin/packet.test -test.v -test.timeout 12m -test.run ^\$test\\$ || failed=1
			done
			exit \$failed"
}

# count KIND GROUP: how many tests ended so.
count() { grep -cE "^ *--- $1:" "bin/vm-$2.log" || true; }

mkdir -p bin
say 'building the program and the runner'
compile build -trimpath -o bin/ ./cmd/kube-ipvs
CGO_ENABLED=0 go build -trimpath -o bin/ ./e2e/vm/vmrun
status=0
for group in "${groups[@]}"; do
	start=$SECONDS
	say "$group ..."
	if "$group"; then
		verdict=ok
	else
		verdict=FAILED status=1
		awk -f e2e/failed.awk "bin/vm-$group.log" | tail -n 150
		say "$group: failed: $(e2e/failed.sh "bin/vm-$group.log")"
	fi
	awk -f e2e/skipped.awk "bin/vm-$group.log"
	say "$group $verdict in $((SECONDS - start))s: $(count PASS "$group") passed, $(count FAIL "$group") failed, $(count SKIP "$group") skipped (bin/vm-$group.log)"
done
exit $status
