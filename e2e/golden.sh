#!/usr/bin/env bash
# golden.sh WHAT: rewrites expectations and pictures. Look at the diff before you commit it.
#
#   scenarios    what the scenario files expect, from the program on fakes
#   recordings   what the verbs print, from a guest, into e2e/recordings and the pages
#   dashboard    the picture of the dashboard, from the metrics of a busy node in a guest; KEEP=1 draws the last metrics again
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
scenarios) exec go test -run TestOnFakes ./e2e/scenarios -update ;;
recordings)
	e2e/suite.sh recordings
	KUBE_IPVS_E2E_RECORD=1 exec go test -count=1 -run TestPageRecordings ./cmd/kube-ipvs
	;;
dashboard)
	e2e/install.sh browser
	[ -n "${KEEP:-}" ] || e2e/suite.sh scrapes
	(cd e2e/alerts && go run ./evaluate) >bin/dashboard.json
	exec e2e/dashboard/draw.sh manifests/monitoring/dashboard.png
	;;
*)
	sed -n '2,/^set /{/^#/p}' "$0" | sed 's/^# \{0,1\}//' >&2
	exit 2
	;;
esac
