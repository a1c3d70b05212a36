#!/usr/bin/env bash
# bench-limits.sh: what limits of the kernel cost, and so what it gains to go around them: destinations added after others were deleted, a
# server that is staged, NodePorts on many addresses or by a mark, addresses or a route, connections in a small table or a large one. Then how
# fast the kernel takes rows at all. It runs in throw-away VMs, because the size of that table is fixed when the module is loaded, and takes some
# minutes. Compare the lines of one run only.
#
#   e2e/bench-limits.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ $# = 0 ] || { sed -n '2,/^set /{/^#/p}' "$0" >&2; exit 2; }
e2e/install.sh vm
CGO_ENABLED=0 go build -trimpath -o bin/ ./e2e/vm/vmrun

# bench ROOM BITS TIMES BENCHMARKS: in a VM with 2^BITS buckets for connections.
bench() {
	CGO_ENABLED=0 go test -c -o "bin/$1.test" "./internal/kernel/$1"
	bin/vmrun -m 3072 -timeout 30m -copy "bin/$1.test:/run/kube-ipvs/$1.test" -- sh -c \
		"modprobe -r ip_vs_rr ip_vs && modprobe ip_vs conn_tab_bits=$2 && exec /run/kube-ipvs/$1.test -test.run '^\$' -test.bench '^Benchmark($4)\$' -test.benchtime $3" >"bin/limits-$1-$2.log" || {
		tail -n 20 "bin/limits-$1-$2.log" >&2
		exit 1
	}
	grep ^Benchmark "bin/limits-$1-$2.log"
}

bench vserver 12 5x 'AddAfterDeletions|Publish|NodePorts'
bench link 12 5x MakeLocal
bench vserver 12 20000x ConnectionTable
bench vserver 20 20000x ConnectionTable

# The floor under all of it: the rows of 5,000 Services, packed beforehand, beside kernel/vserver.
CGO_ENABLED=0 go build -trimpath -o bin/ ./e2e/bench/rawwrite
bin/vmrun -m 3072 -timeout 30m -copy bin/rawwrite:/run/kube-ipvs/rawwrite -- sh -c 'modprobe ip_vs && exec /run/kube-ipvs/rawwrite -services 5000'
