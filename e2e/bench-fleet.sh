#!/usr/bin/env bash
# bench-fleet.sh: what many agents cost one API server: K of them in one process, without kernels, against a real kube-apiserver; then on
# paper for FLEET of them. Needs no root; minutes for each number of Services.
#
#   e2e/bench-fleet.sh                              1,000 Services, up to 100 agents, and the informers of kube-proxy
#   N=1000,5000 K=1,10,50 KINDS=kube-ipvs RATE=50 e2e/bench-fleet.sh
#   FLEET=5000,10000 RATES=10,50 e2e/bench-fleet.sh -endpoints 100 -storm=false       more flags: go run ./e2e/bench/fleet -help
#
# OUT is the file of results, bin/bench-fleet.json if not set; bin/fleet report FILE... makes tables of several.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'bench-fleet: %4ds  %s\n' "$SECONDS" "$*" >&2; }

out=${OUT:-bin/bench-fleet.json}
measure=() paper=()
[ -z "${N:-}" ] || measure+=(-n "$N")
[ -z "${K:-}" ] || measure+=(-k "$K")
[ -z "${KINDS:-}" ] || measure+=(-kinds "$KINDS")
[ -z "${RATE:-}" ] || measure+=(-rate "$RATE")
[ -z "${FLEET:-}" ] || paper+=(-fleet "$FLEET")
[ -z "${RATES:-}" ] || paper+=(-rates "$RATES")

mkdir -p bin "$(dirname "$out")"
say 'etcd, kube-apiserver (built once, some minutes)'
go run ./e2e/kube/build >/dev/null
say 'the fleet'
go build -o bin/ ./e2e/bench/fleet
bin/fleet "${measure[@]}" "${paper[@]}" -json "$@" >"$out.new"
mv "$out.new" "$out"
bin/fleet "${paper[@]}" report "$out"
say "ok: $out"
