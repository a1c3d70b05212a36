#!/usr/bin/env bash
# bench-peers.sh: programs that carry Services, measured one after the other on one machine with one API server: kube-ipvs, kube-proxy built
# from its module, any other by a command line. Runs where IPVS is: on this machine if its kernel has it, else in a throw-away VM.
#
#   e2e/bench-peers.sh                                  all, with 100 to 10,000 Services: hours
#   N=100 CANDIDATES=kube-ipvs,kube-proxy-ipvs PARTS=start,endpoint SAMPLES=20 e2e/bench-peers.sh
#   e2e/bench-peers.sh -candidate 'mine=/opt/mine --kubeconfig {kubeconfig}' -limit 5m      more flags: go run ./e2e/bench -help
#
# ACCEL=uml takes a VM whose kernel is a program (e2e/README.md), which is built once: everything takes a fraction of the time that it takes emulated.
# OUT is the directory of cells, bin/bench-peers if not set: cells that are there and are not measured again stay, so a run that was cut
# short goes on with what is left. HOURS is the limit of all of it, 12 if not set. A program of your own for the VM: COPY=HOST:GUEST, below /run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'bench-peers: %4ds  %s\n' "$SECONDS" "$*"; }

out=${OUT:-bin/bench-peers}
flags=()
[ -z "${N:-}" ] || flags+=(-n "$N")
[ -z "${CANDIDATES:-}" ] || flags+=(-candidates "$CANDIDATES")
[ -z "${PARTS:-}" ] || flags+=(-parts "$PARTS")
[ -z "${SAMPLES:-}" ] || flags+=(-samples "$SAMPLES")
flags+=("$@")

# What names no candidate of ipvs mode is measured wherever iptables are.
need=ipvs
case ",${CANDIDATES:-kube-ipvs}," in
*,kube-ipvs,* | *,kube-proxy-ipvs,*) ;;
*) need=iptables ;;
esac

mkdir -p "$out"
say 'etcd, kube-apiserver, kube-proxy (built once, some minutes)'
controlplane=$(go run ./e2e/kube/build)
say 'the agent, the runner, the benchmark'
CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/kube-ipvs ./e2e/vm/vmrun ./e2e/kube/serve ./e2e/bench ./e2e/bench/limit

status=0
accel=${ACCEL:-auto} aside=() everywhere=()
if [ "$accel" = uml ]; then
	e2e/install.sh uml
	# The guest has the last CPU of this machine to itself, as far as the control plane is concerned.
	[ "$(nproc)" = 1 ] || aside=(taskset -c "0-$(($(nproc) - 2))") everywhere=(taskset -c "0-$(($(nproc) - 1))")
fi
if [ "$accel" = auto ] && [ "$(bin/vmrun -where -need $need 2>/dev/null)" = netns ] && [ "$(id -u)" = 0 ]; then
	say "on this machine, in namespaces of its own ($out)"
	bin/bench -kube-ipvs bin/kube-ipvs -kube-proxy "$controlplane/kube-proxy" -writer "$PWD/bin/limit" -out "$out" "${flags[@]}" || status=1
else
	e2e/install.sh vm
	say "in a VM ($out)"
	guest=/run/kube-ipvs
	copies=(-copy "bin/bench:$guest/bench" -copy "bin/limit:$guest/limit" -copy "bin/kube-ipvs:$guest/kube-ipvs" -copy "$controlplane/kube-proxy:$guest/kube-proxy")
	[ -z "${COPY:-}" ] || copies+=(-copy "$COPY")
	# The control plane is a process of serve; the guest reaches it at 10.0.2.2.
	"${aside[@]}" bin/serve -- "${everywhere[@]}" bash -c 'exec bin/vmrun -env "KUBE_IPVS_CLUSTERS=$KUBE_IPVS_CLUSTERS" "$@"' vmrun -accel "$accel" -m 3072 -timeout "${HOURS:-12}h" "${copies[@]}" -share "$(realpath "$out"):$guest/out:rw" -- \
		"$guest/bench" -kube-ipvs "$guest/kube-ipvs" -kube-proxy "$guest/kube-proxy" -writer "$guest/limit" -out "$guest/out" "${flags[@]}" || status=1
fi
bin/bench report "$out"
say "$([ $status = 0 ] && echo ok || echo 'FAILED in part'): $out/bench.md, brief.md, bench.svg, bench.json"
exit $status
