#!/usr/bin/env bash
# test-iptables.sh: iptables mode with real packets and by the files of e2e/scenarios, with both kinds of iptables: in network
# namespaces of this machine if its kernel has iptables, else in a throw-away VM. The whole output goes to bin/iptables.log.
#
#   e2e/test-iptables.sh                    all tests of iptables mode
#   e2e/test-iptables.sh TestIPTablesScale  those whose names match
#
# RACE=1 builds all of it with the race detector: what it finds in a test or in an agent fails the test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/compile.sh

pattern=${1:-^TestIPTables}
log=bin/iptables.log

say() { printf 'test-iptables: %s\n' "$*"; }

# count KIND: how many tests ended so.
count() { grep -cE "^ *--- $1:" "$log" || true; }

e2e/install.sh tools
mkdir -p bin
say 'building the program, the runner and the tests'
compile build -trimpath -o bin/ ./cmd/kube-ipvs
CGO_ENABLED=0 go build -trimpath -o bin/ ./e2e/vm/vmrun
compile test -c -o bin/packet.test ./e2e/packet
compile test -c -o bin/scenarios.test ./e2e/scenarios
if [ "$(bin/vmrun -where -need iptables)" = vm ]; then
	e2e/install.sh vm
fi

# Most of the time of a test is waiting, so there may be more of them than processors.
start=$SECONDS status=0
say "$pattern ..."
bin/vmrun -auto -need iptables -timeout "$(patience 45)m" -copy bin/kube-ipvs:/run/kube-ipvs/bin/kube-ipvs \
	-copy bin/packet.test:/run/kube-ipvs/bin/packet.test -copy bin/scenarios.test:/run/kube-ipvs/bin/scenarios.test -share "$PWD:/run/kube-ipvs/src" \
	-env KUBE_IPVS_BIN=/run/kube-ipvs/bin/kube-ipvs -env "KUBE_IPVS_E2E_KILLS=${KUBE_IPVS_E2E_KILLS:-}" -- \
	bash -c "cd /run/kube-ipvs/src/e2e/packet && /run/kube-ipvs/bin/packet.test -test.v -test.parallel 6 -test.timeout $(patience 33)m -test.run '$pattern' &&
		cd ../scenarios && /run/kube-ipvs/bin/scenarios.test -test.v -test.timeout $(patience 10)m -test.run '$pattern'" \
	>"$log" || status=$?
verdict=ok
if [ "$status" -ne 0 ]; then
	verdict=FAILED
	awk -f e2e/failed.awk "$log" | tail -n 150
	say "failed: $(e2e/failed.sh "$log")"
fi
awk -f e2e/skipped.awk "$log"
say "$verdict in $((SECONDS - start))s: $(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped ($log)"
exit "$status"
