#!/usr/bin/env bash
# demo.sh: see kube-ipvs at work. Builds the agent and the demo's servers, then runs e2e/demo/run.sh in a network namespace of this
# machine if its kernel has IPVS, else in a throw-away VM. Ends by itself; the exit status says whether everything behaved.
#
#   MODE=iptables e2e/demo.sh   iptables mode; on this machine if its kernel has iptables
#   RULES=nftables e2e/demo.sh  ipvs mode with its rules in nftables
#   KERNEL=uml-nft e2e/demo.sh  in a guest with this kernel (vmrun -accel)
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

# build compiles and prints how many packages are done, every five seconds: from an empty cache it takes minutes.
build() {
	local log=bin/demo-build.log start=$SECONDS compiler version
	version=$(git describe --tags --always --dirty 2>/dev/null) || version= # as make build has it
	CGO_ENABLED=0 go build -v -trimpath -buildvcs=false -ldflags "-X main.version=$version" -o bin/ ./cmd/kube-ipvs ./e2e/backend/cmd/backend ./e2e/vm/vmrun >"$log" 2>&1 &
	compiler=$!
	while sleep 0.2 && kill -0 "$compiler" 2>/dev/null; do
		if [ $(((SECONDS - start) % 5)) = 4 ]; then
			say "$(grep -vc '^go: ' "$log") packages compiled, $(grep -c '^go: ' "$log") modules downloaded, $((SECONDS - start))s"
			sleep 1
		fi
	done
	wait "$compiler" || { cat "$log" >&2; return 1; }
	say "built in $((SECONDS - start))s"
}

say 'building kube-ipvs, the servers and the runner'
mkdir -p bin
build

say "asking the kernel of this machine for $wanted"
where=$(bin/vmrun -need "$mode" -where 2>/dev/null) # the reason is said when it runs
case $where in
netns) e2e/install.sh tools ;;
*) e2e/install.sh vm ;;
esac

say "starting in the $where"
guest=/run/demo
exec bin/vmrun -auto -accel "${KERNEL:-auto}" -need "$mode" -timeout 10m \
	-copy bin/kube-ipvs:$guest/bin/kube-ipvs -copy bin/backend:$guest/bin/backend -share e2e/demo:$guest/src \
	-env "DEMO_COLOR=$color" -env "DEMO_MODE=$mode" -env "DEMO_RULES=${RULES:-}" -- bash -c "PATH=$guest/bin:\$PATH exec bash $guest/src/run.sh"
