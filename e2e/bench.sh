#!/usr/bin/env bash
# bench.sh [WHAT]: measurements. Each compares within one run on one machine.
#
#   (nothing)   what one change costs in each package, and that it does not grow with the number of Services
#   micro       packages that need no kernel, against the last run on this machine; a minute
#   growth      that what a hostile Service costs is linear: ports, ranges, addresses, endpoints, claimants; a minute
#   peers       kube-ipvs and kube-proxy in each mode, from outside: N=100,1000 CANDIDATES= PARTS= SAMPLES=; hours for all
#   iptables    kube-ipvs and kube-proxy in iptables mode: COST=5000x10, COST_BACKEND=legacy
#   memory      RSS and live heap with 10,000 Services of 10 endpoints: KUBE_IPVS_E2E_MEMORY=10000x10
#   limits      what limits of the kernel cost, and how fast it takes rows at all
#   queries     what show, explain, diff, top and a scrape cost with N=10000 Services
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
'') exec go test -run '^$' -bench . -benchtime 300ms ./internal/... ./cmd/... ./ipset/... ;;
growth) exec go test -run '^$' -bench BenchmarkGrowth -benchtime 1x ./internal/cli ;;
micro) exec e2e/benchstat.sh ;;
peers | limits) exec "e2e/bench-$1.sh" ;;
iptables) KUBE_IPVS_E2E_COST=${COST:-5000x10} KUBE_IPVS_E2E_COST_BACKEND=${COST_BACKEND:-} exec e2e/test-kube.sh TestIPTablesCost ;;
memory) KUBE_IPVS_E2E_MEMORY=${KUBE_IPVS_E2E_MEMORY:-10000x10} exec e2e/test-kube.sh TestMemory ;;
queries) KUBE_IPVS_E2E_SERVICES=${N:-10000} exec e2e/suite.sh queries ;;
*)
	sed -n '2,/^set /{/^#/p}' "$0" | sed 's/^# \{0,1\}//' >&2
	exit 2
	;;
esac
