#!/usr/bin/env bash
# benchstat.sh: the benchmarks that need no kernel, about a minute of them, compared with the last run on this machine.
#
#   e2e/benchstat.sh
#
# The last run is kept in the cache, as bench/last.txt. None is kept in the repository: its times would be another machine's, and say
# nothing about a change. A slower time is printed and never an error; a benchmark that does not build or run is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${KUBE_IPVS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kube-ipvs}
version=v0.0.0-20260908200009-22c9c6c9d4da
tool=$cache/bin/benchstat-$version
last=$cache/bench/last.txt
now=bin/bench.txt

say() { printf 'benchstat: %s\n' "$*"; }

# have_tool builds benchstat, once.
have_tool() {
	if [ ! -x "$tool" ]; then
		say "building benchstat $version, once"
		mkdir -p "$cache/bin"
		GOBIN=$cache/bin/new go install "golang.org/x/perf/cmd/benchstat@$version"
		mv "$cache/bin/new/benchstat" "$tool"
		rmdir "$cache/bin/new"
	fi
}

# bench PATTERN PACKAGE... runs each benchmark six times, the fewest that benchstat draws conclusions from.
bench() {
	local pattern=$1
	shift
	if ! go test -run '^$' -bench "$pattern" -benchmem -benchtime 20ms -count 6 -timeout 5m "$@" >>"$now"; then
		tail -n 60 "$now"
		say "a benchmark of $* did not build or run"
		return 1
	fi
}

mkdir -p bin
: >"$now"
start=$SECONDS
bench . ./internal/plan ./internal/delta ./internal/catalog ./internal/source ./internal/dataplane
bench '^Benchmark(Render|OneEndpointOf)$' ./internal/dataplane/ipvs
bench '^BenchmarkRender$' ./internal/dataplane/iptables
bench '^Benchmark(Encode|Decode)$' ./internal/kernel/vserver ./internal/kernel/link ./internal/kernel/conntrack ./ipset
say "ran in $((SECONDS - start))s"

if [ -s "$last" ]; then
	say "the last run ($(date -r "$last" '+%F %T')) against this one:"
	have_tool
	"$tool" -filter '.unit:(sec/op OR allocs/op)' "last=$last" "now=$now"
else
	say "this is the first run on this machine, so no earlier run can be compared ($now)"
	grep -E '^Benchmark' "$now" | awk '!seen[$1]++'
fi
mkdir -p "$(dirname "$last")"
cp "$now" "$last"
