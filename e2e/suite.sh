#!/usr/bin/env bash
# suite.sh [FLAG] STAGE...: builds e2e/suite and runs it. "e2e/suite.sh -h" has examples, "e2e/suite.sh -list" the stages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p bin
go build -trimpath -o bin/ ./e2e/suite
exec bin/suite "$@"
