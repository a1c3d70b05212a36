#!/bin/bash
# The second half of a node, in its own root: see node.sh. NODES is how many nodes there are. Afterwards it runs the scripts that the machine puts into /run/cluster/NAME/, one after the other.
set -euo pipefail
name=node$INDEX
own=/run/cluster/$name
exec >"$own/boot.log" 2>&1
export PATH=/run/binaries:$PATH

mount --make-rshared /
hostname "$name"
# The link keeps its address over a reboot, as that of a machine does. Neighbours look for another one for ten seconds.
ip -batch - <<-IP
	link set eth0 down
	link set eth0 address 02:00:00:30:00:1$INDEX
	link set eth0 up
	address add 172.30.0.1$INDEX/24 dev eth0
	address add fd00:30::1$INDEX/64 dev eth0 nodad
	route add default via 172.30.0.1
	route add default via fd00:30::1
IP
for other in $(seq "$NODES"); do
	[ "$other" = "$INDEX" ] && continue
	ip route add "10.244.$other.0/24" via "172.30.0.1$other"
	ip -6 route add "fd00:10:244:$other::/64" via "fd00:30::1$other"
done
echo "nameserver 172.30.0.1" >/run/resolv.conf

# cAdvisor wants to know how fast the processor is, and User-mode Linux does not say.
{ sed '/^$/d' /proc/cpuinfo; echo 'cpu MHz		: 2000.000'; echo; } >/run/cpuinfo
mount --bind /run/cpuinfo /proc/cpuinfo

# The kubelet sets these, and the kernel has no keys.
if [ ! -e /proc/sys/kernel/keys ]; then
	mkdir -p /run/kernel/keys
	for entry in /proc/sys/kernel/*; do
		if [ -d "$entry" ]; then mkdir -p "/run/kernel/${entry##*/}"; else : >"/run/kernel/${entry##*/}"; fi
		mount --bind "$entry" "/run/kernel/${entry##*/}"
	done
	echo 1000000 >/run/kernel/keys/root_maxkeys
	echo 25000000 >/run/kernel/keys/root_maxbytes
	mount --rbind /run/kernel /proc/sys/kernel
fi

mkdir -p /etc/cni/net.d
cat >/etc/cni/net.d/10-pods.conflist <<-CNI
	{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local",
	  "ranges": [[{"subnet": "10.244.$INDEX.0/24"}], [{"subnet": "fd00:10:244:$INDEX::/64"}]],
	  "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}]}
CNI
cat >/run/containerd.toml <<-TOML
	version = 3
	[plugins.'io.containerd.cri.v1.images']
	snapshotter = "$SNAPSHOTTER"
	[plugins.'io.containerd.cri.v1.images'.pinned_images]
	sandbox = "localhost/pause:e2e"
	[plugins.'io.containerd.cri.v1.runtime'.cni]
	bin_dirs = ["/usr/lib/cni"]
	conf_dir = "/etc/cni/net.d"
	[plugins.'io.containerd.cri.v1.runtime'.containerd]
	default_runtime_name = "crun"
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun]
	runtime_type = "io.containerd.runc.v2"
	snapshotter = "$SNAPSHOTTER"
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun.options]
	BinaryName = "/run/cluster/oci"
TOML
cat >/run/kubelet.yaml <<-YAML
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /run/cluster/controlplane/ca.crt}}
	authorization: {mode: Webhook}
	cgroupDriver: cgroupfs
	cgroupsPerQOS: false
	enforceNodeAllocatable: []
	clusterDNS: [10.96.0.10]
	clusterDomain: cluster.local
	containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
	evictionHard: {memory.available: 20Mi}
	failSwapOn: false
	localStorageCapacityIsolation: false
	nodeStatusReportFrequency: 5s
	nodeStatusUpdateFrequency: 5s
	resolvConf: /run/resolv.conf
YAML

# keep starts a program again when it ends, as a unit of systemd does.
keep() {
	local log=$1
	shift
	while true; do
		"$@" >>"$own/$log" 2>&1 || true
		echo "ended: $1" >>"$own/$log"
		sleep 1
	done
}
keep containerd.log containerd --config /run/containerd.toml &
until ctr version >/dev/null 2>&1; do sleep 0.2; done
for image in /run/cluster/images/*.tar; do
	ctr --namespace k8s.io images import --local --snapshotter "$SNAPSHOTTER" "$image"
done
keep kubelet.log kubelet --config=/run/kubelet.yaml --kubeconfig="$own/kubeconfig" --hostname-override="$name" \
	--node-ip="172.30.0.1$INDEX,fd00:30::1$INDEX" &

set +e
while true; do
	for script in "$own"/run/*.sh; do
		[ -e "$script" ] || continue
		timeout 120 bash "$script" >"${script%.sh}.out" 2>&1
		echo $? >"${script%.sh}.status.new"
		rm "$script"
		mv "${script%.sh}.status.new" "${script%.sh}.status"
	done
	sleep 0.3
done
