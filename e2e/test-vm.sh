#!/usr/bin/env bash
# test-vm.sh [GROUP [TEST]]: the name that stages of e2e/suite.sh had in earlier releases. It goes with the next release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
'') stages=(packets contracts runner) ;;
packet) stages=(packets) ;;
rooms | promotion) stages=(contracts) ;;
model) stages=(model-guest) ;;
*) stages=("$1") ;;
esac
[ -z "${ACCEL:-}" ] || export KERNEL=$ACCEL
echo "test-vm.sh is now: e2e/suite.sh ${2:+-run '$2' }${stages[*]}" >&2
exec e2e/suite.sh ${2:+-run "$2"} "${stages[@]}"
