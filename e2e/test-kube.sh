#!/usr/bin/env bash
# test-kube.sh: the tests with a real Kubernetes API. Builds etcd and kube-apiserver once, into the cache; they run on this
# machine's loopback, and the agent follows them from where IPVS is: a network namespace here, or a throw-away VM.
#
#   e2e/test-kube.sh                     all tests
#   e2e/test-kube.sh TestCompaction      those whose names match
#
# KUBE_IPVS_E2E_OUTAGE is how long the API server is killed for, 5m if not set. KUBE_IPVS_E2E_MEMORY=10000x10 makes TestMemory
# measure so many Services with so many endpoints each. KUBE_IPVS_E2E_BASELINE=1 makes TestTakeover restart kube-proxy in each mode
# first, to compare with. KUBE_IPVS_E2E_COST=5000x10 makes TestIPTablesCost compare what both proxies pay in iptables mode, with the rules
# in KUBE_IPVS_E2E_COST_BACKEND, nft if not set; it needs a kernel with iptables only. The whole output goes to bin/e2e-kube.log, profiles
# and what both proxies print to bin/e2e-kube/.
# RACE=1 builds agent and tests with the race detector: what it finds in one of them fails the test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. e2e/compile.sh

pattern=${1:-.}
log=bin/e2e-kube.log
src=/run/kube-ipvs/src
bin=/run/kube-ipvs/bin
need=ipvs
minutes=$(patience 35)
if [ "$pattern" = TestIPTablesCost ]; then
	need=iptables minutes=$(patience 120)
fi

say() { printf 'e2e-kube: %4ds  %s\n' "$SECONDS" "$*"; }

# count KIND: how many tests ended so.
count() { grep -cE "^ *--- $1:" "$log" || true; }

mkdir -p bin/e2e-kube
say 'etcd, kube-apiserver, kubectl, kube-proxy (built once, some minutes)'
controlplane=$(go run ./e2e/kube/build)
say 'the agent, the runner, the tests'
compile build -trimpath -o bin/ ./cmd/kube-ipvs
CGO_ENABLED=0 go build -trimpath -o bin/ ./e2e/vm/vmrun ./e2e/kube/serve
compile test -c -o bin/kube-traffic.test ./e2e/kube/traffic
if [ "$(bin/vmrun -where -need $need 2>/dev/null)" = vm ]; then
	e2e/install.sh vm
fi

say 'the control plane itself, the manifests, what benchmarks ask of it'
KUBE_IPVS_E2E_KUBE=1 go test -count=1 -run "$pattern" ./e2e/kube ./e2e/bench/apiload

say "the agent on a kernel with $need ... ($log)"
status=0
rm -f bin/e2e-kube/*
# The control planes are processes of serve; the guest reaches them at 10.0.2.2.
OUTAGE=${KUBE_IPVS_E2E_OUTAGE:-5m} PATTERN=$pattern SRC=$src BIN=$bin PROXY=$controlplane/kube-proxy NEED=$need MINUTES=$minutes bin/serve -- bash -c '
	exec bin/vmrun -auto -need "$NEED" -m 3072 -timeout "${MINUTES}m" -share "$PWD:$SRC" -share "$PWD/bin/e2e-kube:/run/kube-ipvs/out:rw" \
		-copy "$PROXY:$BIN/kube-proxy" -copy "bin/kube-ipvs:$BIN/kube-ipvs" -copy "bin/kube-traffic.test:$BIN/kube-traffic.test" \
		-env "KUBE_IPVS_CLUSTERS=$KUBE_IPVS_CLUSTERS" -env KUBE_IPVS_E2E_KUBE=1 -env "KUBE_IPVS_E2E_OUTAGE=$OUTAGE" \
		-env "KUBE_IPVS_BIN=$BIN/kube-ipvs" -env "KUBE_IPVS_KUBE_PROXY=$BIN/kube-proxy" -env "KUBE_IPVS_SRC=$SRC" -env KUBE_IPVS_OUT=/run/kube-ipvs/out \
		-env "KUBE_IPVS_E2E_MEMORY=${KUBE_IPVS_E2E_MEMORY:-}" -env "KUBE_IPVS_E2E_TAKEOVER=${KUBE_IPVS_E2E_TAKEOVER:-}" -env "KUBE_IPVS_E2E_BASELINE=${KUBE_IPVS_E2E_BASELINE:-}" \
		-env "KUBE_IPVS_E2E_COST=${KUBE_IPVS_E2E_COST:-}" -env "KUBE_IPVS_E2E_COST_BACKEND=${KUBE_IPVS_E2E_COST_BACKEND:-}" \
		-- "$BIN/kube-traffic.test" -test.v -test.timeout "$((MINUTES - 1))m" -test.parallel 4 -test.run "$PATTERN"' 2>&1 |
	tee "$log" | grep --line-buffered -E '^(figure:|cost:|--- |panic:|FAIL|vmrun:)' || status=1
if [ "${PIPESTATUS[0]}" != 0 ] || [ "$(count FAIL)" != 0 ] || [ "$(count PASS)" = 0 ]; then
	status=1
fi
if [ $status != 0 ]; then
	awk -f e2e/failed.awk "$log" | tail -n 150
	say "failed: $(e2e/failed.sh "$log")"
fi
if [ -f bin/e2e-kube/memory.heap ]; then
	say 'live heap by where it was allocated'
	go tool pprof -sample_index=inuse_space -top -nodecount=60 bin/kube-ipvs bin/e2e-kube/memory.heap 2>/dev/null |
		awk '/flat%/ || $1 ~ /B$/ && $1 != "0"' | sed -E 's/go\.shape\.(struct )?//g; s#github.com/kube-ipvs/kube-ipvs/(internal/)?##g' | cut -c1-150 | sed -n 1,25p
fi
for file in bin/e2e-kube/iptables-cost*.json; do
	[ ! -f "$file" ] || cp "$file" bin/
done
awk -f e2e/skipped.awk "$log"
say "$([ $status = 0 ] && echo ok || echo FAILED): $(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped ($log)"
exit $status
