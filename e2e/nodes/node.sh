#!/bin/bash
# A node: runs as the command of a guest, whose tools are those of the runner. Makes a root file system out of the machine's own,
# read-only, with everything that is written in memory; then starts containerd and a kubelet in it. INDEX is the number of the node;
# /run/cluster is the directory that all nodes share with the machine, /run/binaries has kubelet and containerd, /run/host is the machine's root.
set -euo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

root=/run/root
mkdir -p /run/over $root
mount -t tmpfs none /run/over
mkdir /run/over/upper /run/over/work
mount -t overlay -o lowerdir=/run/host,upperdir=/run/over/upper,workdir=/run/over/work none $root
# The machine's own state is none of the node's.
for dir in run tmp var/lib/containerd var/lib/kubelet var/lib/cni var/log etc/cni; do
	mkdir -p "$root/$dir"
	mount -t tmpfs none "$root/$dir"
done
mount -t proc none $root/proc
mount -t sysfs none $root/sys
mount -t cgroup2 none $root/sys/fs/cgroup
mount -t devtmpfs none $root/dev
mkdir -p $root/dev/pts $root/dev/shm $root/run/cluster $root/run/binaries $root/usr/lib/modules
mount -t devpts -o mode=620,ptmxmode=666 none $root/dev/pts
mount -t tmpfs none $root/dev/shm
mount --bind /run/cluster $root/run/cluster
mount --bind /run/binaries $root/run/binaries
cp -r "/lib/modules/$(uname -r)" $root/usr/lib/modules/
cp /run/cluster/inside.sh $root/run/inside.sh
cd $root
mount --move . /
exec chroot . /bin/bash /run/inside.sh
