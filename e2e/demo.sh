#!/usr/bin/env bash
# demo.sh: see kube-ipvs at work. Builds the agent and the demo's servers, then runs e2e/demo/run.sh in a network namespace of this
# machine if its kernel has IPVS, else in a throw-away VM. Ends by itself; the exit status says whether everything behaved.
#
#   MODE=iptables e2e/demo.sh   iptables mode; on this machine if its kernel has iptables
#
#   e2e/demo.sh            colours on a terminal only
#   e2e/demo.sh --color    colours always, for "less -R" or a recording
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'demo: %s\n' "$*"; }

color=0
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] || [ "${1:-}" = --color ]; then
	color=1
fi

mode=${MODE:-ipvs}
case $mode in
ipvs) wanted=IPVS ;;
iptables) wanted=iptables ;;
*)
	echo "demo: MODE=$mode is not one of ipvs, iptables" >&2
	exit 2
	;;
esac

say 'building kube-ipvs, the servers and the runner (the first time takes a minute or two)'
mkdir -p bin
CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/kube-ipvs ./e2e/backend/cmd/backend ./e2e/vm/vmrun

say "asking the kernel of this machine for $wanted"
where=$(bin/vmrun -need "$mode" -where 2>/dev/null) # the reason is said when it runs
case $where in
netns) e2e/install.sh tools ;;
*) e2e/install.sh vm ;;
esac

say "starting in the $where"
guest=/run/demo
exec bin/vmrun -auto -need "$mode" -timeout 10m \
	-copy bin/kube-ipvs:$guest/bin/kube-ipvs -copy bin/backend:$guest/bin/backend -share e2e/demo:$guest/src \
	-env "DEMO_COLOR=$color" -env "DEMO_MODE=$mode" -- bash -c "PATH=$guest/bin:\$PATH exec bash $guest/src/run.sh"
