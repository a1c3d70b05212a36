#!/usr/bin/env bash
# test-iptables.sh [TEST]: the name that the stage iptables of e2e/suite.sh had in earlier releases. It goes with the next release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "test-iptables.sh is now: e2e/suite.sh ${1:+-run '$1' }iptables" >&2
exec e2e/suite.sh ${1:+-run "$1"} iptables
