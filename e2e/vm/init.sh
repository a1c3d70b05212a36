#!/bin/bash
# The guest's first process: makes a router node out of a bare kernel, runs one command, reports its exit status, powers off.
# Every program start counts under emulation, so builtins are used wherever there is one.

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb

power_off() {
	echo o >/proc/sysrq-trigger
	sleep 60 # the kernel ends us; a first process that returns would be a panic
}

give_up() {
	echo "init: $*" >/dev/console
	sleep 1 # the line goes out byte by byte, and the kernel's last words would cut into it
	power_off
}

# port prints the device of the virtio port with the given name.
port() {
	local dir name
	for dir in /sys/class/virtio-ports/*; do
		read -r name <"$dir/name" && [ "$name" = "$1" ] && echo "/dev/${dir##*/}" && return
	done
	return 1
}

mount -a || give_up "cannot mount the kernel's file systems"
ln -s /proc/self/fd /dev/fd

# Written by the runner: MACHINE (qemu or uml), LINK (of the host that is eth0, or empty), MODULES, SHARES (tag type options directory), KUBE_IPVS_DIR.
. /kube-ipvs/config

if [ $MACHINE = uml ]; then
	# Two serial lines are files of the host; a line's discipline would change what is written.
	output=/dev/ttyS0 report=/dev/ttyS1
	for line in $output $report; do
		stty -F $line raw -echo || give_up "no serial line $line"
	done
	ip link set vec0 name eth0
	modprobe -a $MODULES || echo "init: a module is missing" >/dev/console
else
	# 9p loads its transport by itself only since Linux 5.17.
	modprobe -a virtio_pci virtio_console virtio_net virtio_rng 9pnet_virtio $MODULES || echo "init: a module is missing" >/dev/console
	output=$(port output) && report=$(port report) || give_up "no virtio ports"
fi
exec 4>"$report"

# lo first: adding a destination in a namespace whose lo is down is answered with EINVAL.
if [ -n "$LINK" ]; then
	ip -batch - <<<$'link set lo up\nlink set eth0 up' # addresses are the command's business
else
	ip -batch - <<-IP
		link set lo up
		address add 10.0.2.15/24 dev eth0
		link set eth0 up
		route add default via 10.0.2.2
	IP
	echo nameserver 10.0.2.3 >/etc/resolv.conf
fi || echo "init: no network" >/dev/console
echo kube-ipvs >/proc/sys/kernel/hostname

echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
for interface in all default eth0; do
	echo 0 >/proc/sys/net/ipv4/conf/$interface/rp_filter
done
[ ! -e /proc/sys/net/netfilter/nf_conntrack_max ] || echo 1048576 >/proc/sys/net/netfilter/nf_conntrack_max

while read -r tag type options directory; do
	[ -n "$tag" ] || continue
	mkdir -p "$directory"
	mount -t "$type" -o "$options" "$tag" "$directory" || give_up "cannot mount the share $directory"
done <<<"$SHARES"

# The command writes into a pipe, not into the port: a port can be opened once only, and scripts do open /dev/stderr.
exec 5> >(exec cat >"$output")
copier=$!

cd "$KUBE_IPVS_DIR" || give_up "no directory $KUBE_IPVS_DIR"
echo "up $(</proc/sys/kernel/osrelease)" >&4
/bin/bash /kube-ipvs/command </dev/null >&5 2>&1 4>&- 5>&-
status=$?

# Processes that the command left running hold the pipe open. End them, so that the copier sees the end of its input.
exec 5>&-
for process in /proc/[0-9]*; do
	process=${process#/proc/}
	[ "$process" = 1 ] || [ "$process" = "$copier" ] || kill -KILL "$process"
done 2>/dev/null
wait "$copier"
sync
echo "exit $status" >&4
power_off
