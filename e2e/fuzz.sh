#!/usr/bin/env bash
# fuzz.sh [TARGET]: every fuzz target for FUZZTIME (10s), or those whose name matches, with a line for each. A package with targets is built
# once, for all of them. What fails is kept under testdata/fuzz of its package, where go test tries it from then on.
#   FUZZTIME   for each target, as go test has it: 3s, 1m, 10000x
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

: "${FUZZTIME:=10s}"
mkdir -p bin/fuzz
cache=$(go env GOCACHE)/fuzz/$(go list -m)
root=$PWD status=0

# number KEY LOG: what the last line of progress says.
number() { grep -aoE "$1: [0-9]+" "$2" | tail -n 1 | grep -oE '[0-9]+$' || echo 0; }

# unfinished LOG: whether all that failed is the end of the time: on a busy machine a worker is still at an input then, and go test calls
# that a failure without any input that fails.
unfinished() { grep -q '^ *context deadline exceeded$' "$1" && ! grep -qE 'Failing input|panic:|fatal error:' "$1"; }

# An input that reaches something new is made smaller, by default for up to a minute: the whole of a short run.
try() {
	local dir=$1 target=$2 program=$root/bin/fuzz/${1//\//-}.test log=$root/bin/fuzz/${1//\//-}-$2.log
	local start=$EPOCHREALTIME verdict=ok
	rm -f "${log%.log}.worst"
	(cd "$dir" && KUBE_IPVS_WORST="${log%.log}.worst" "$program" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$FUZZTIME" -test.fuzzminimizetime 20x -test.fuzzcachedir "$cache/$dir") >"$log" 2>&1 ||
		verdict=FAILED
	if [ "$verdict" = FAILED ] && unfinished "$log"; then
		verdict='ok, the last input unfinished'
	fi
	local took=$(((${EPOCHREALTIME/./} - ${start/./}) / 100000))
	printf '%-26s %-18s %10d execs %5d new %5d.%ds %s\n' "$dir" "$target" "$(number execs "$log")" "$(number 'new interesting' "$log")" \
		$((took / 10)) $((took % 10)) "$verdict"
	if [ -s "${log%.log}.worst" ]; then
		sort -n "${log%.log}.worst" | tail -n 1 | sed 's/^ */    worst: /'
	fi
	if [ "$verdict" = FAILED ]; then
		status=1
		tail -n 40 "$log"
	fi
}

while read -r dir; do
	targets=$(grep -hoE '^func Fuzz[A-Za-z0-9]+' "$dir"/*_test.go | awk '{ print $2 }' | sort | grep -E "${1:-.}" || true)
	[ -n "$targets" ] || continue
	go test -c -fuzz . -o "bin/fuzz/${dir//\//-}.test" "./$dir"
	for target in $targets; do
		try "$dir" "$target"
	done
done < <(grep -rlE --include='*_test.go' '^func Fuzz' cmd internal ipset scheduler e2e | xargs -n 1 dirname | sort -u)
exit "$status"
