#!/usr/bin/env bash
# bench-peers.sh: measures programs that carry Services, one after the other on one machine with one API server: kube-ipvs, kube-proxy built
# from its module, any other by a command line. It runs on this machine if the kernel has IPVS, else in a throw-away VM.
#
#   e2e/bench-peers.sh                                  all, with 100 to 10,000 Services: hours
#   N=100 CANDIDATES=kube-ipvs,kube-proxy-ipvs PARTS=start,endpoint SAMPLES=20 e2e/bench-peers.sh
#   e2e/bench-peers.sh -candidate 'mine=/opt/mine --kubeconfig {kubeconfig}' -limit 5m      more flags: go run ./e2e/bench -help
#
# ACCEL=uml takes User-mode Linux (e2e/README.md), which is built once and takes a fraction of the emulated time. OUT is the directory of
# results, bin/bench-peers by default; results that are not measured again stay. HOURS limits the run, 12 by default. A program of your own
# for the VM: COPY=HOST:GUEST, below /run.
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

# Without a candidate of ipvs mode, a kernel with iptables is enough.
need=ipvs
case ",${CANDIDATES:-kube-ipvs}," in
*,kube-ipvs,* | *,kube-ipvs-nftables,* | *,kube-proxy-ipvs,*) ;;
*) need=iptables ;;
esac

mkdir -p "$out"
say 'etcd, kube-apiserver, kube-proxy (built once, some minutes)'
controlplane=$(go run ./e2e/kube/build)
say 'the agent, the runner, the benchmark'
CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/kube-ipvs ./e2e/vm/vmrun ./e2e/kube/serve ./e2e/bench

status=0
accel=${ACCEL:-auto} aside=() everywhere=()
if [ "$accel" = uml ]; then
	e2e/install.sh uml
	# The guest has the last CPU of this machine to itself, as far as the control plane is concerned.
	[ "$(nproc)" = 1 ] || aside=(taskset -c "0-$(($(nproc) - 2))") everywhere=(taskset -c "0-$(($(nproc) - 1))")
fi
if [ "$accel" = auto ] && [ "$(bin/vmrun -where -need $need 2>/dev/null)" = netns ] && [ "$(id -u)" = 0 ]; then
	say "on this machine, in namespaces of its own ($out)"
	bin/bench -kube-ipvs bin/kube-ipvs -kube-proxy "$controlplane/kube-proxy" -out "$out" "${flags[@]}" || status=1
else
	e2e/install.sh vm
	say "in a VM ($out)"
	guest=/run/kube-ipvs
	copies=(-copy "bin/bench:$guest/bench" -copy "bin/kube-ipvs:$guest/kube-ipvs" -copy "$controlplane/kube-proxy:$guest/kube-proxy")
	[ -z "${COPY:-}" ] || copies+=(-copy "$COPY")
	# The control plane is a process of serve; the guest reaches it at 10.0.2.2.
	"${aside[@]}" bin/serve -- "${everywhere[@]}" bash -c 'exec bin/vmrun -env "KUBE_IPVS_CLUSTERS=$KUBE_IPVS_CLUSTERS" "$@"' vmrun -accel "$accel" -m 3072 -timeout "${HOURS:-12}h" "${copies[@]}" -share "$(realpath "$out"):$guest/out:rw" -- \
		"$guest/bench" -kube-ipvs "$guest/kube-ipvs" -kube-proxy "$guest/kube-proxy" -out "$guest/out" "${flags[@]}" || status=1
fi
bin/bench report "$out"
say "$([ $status = 0 ] && echo ok || echo 'FAILED in part'): $out/bench.md, bench.svg"
exit $status
