#!/usr/bin/env bash
# install.sh: put on this machine what the tests need and what it lacks.
#
#   e2e/install.sh tools      the kernel's tools: ip, iptables, ipset, ipvsadm, nft, conntrack ..., and an OCI runtime
#   e2e/install.sh vm         QEMU, to run a kernel with ip_vs where the host has none, and the tools it copies
#   e2e/install.sh uml        the tools that build a User-mode Linux kernel
#   e2e/install.sh emulators  programs of arm64 and s390x on this processor
#   e2e/install.sh cluster    CNI plug-ins, for the nodes of make e2e-cluster
#   e2e/install.sh neighbours firewalls, managers of links and a routing daemon, for make stress WHAT=neighbours
#   e2e/install.sh browser    a browser without a window, and npm: for the picture of the dashboard
#   e2e/install.sh            tools and vm
#
# Nothing is touched when every command is already there, so it may run before each test.
set -euo pipefail

# Commands live in sbin directories that an ordinary user's PATH leaves out.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# One row per package: the command that proves it is there, Debian's package, the package elsewhere, what it is for.
TOOLS='
ip                  iproute2          iproute            links, addresses and network namespaces
iptables-nft        iptables          iptables-nft       rules over nf_tables
iptables-legacy     iptables          iptables-legacy    rules over x_tables
ipset               ipset             ipset              sets that rules match on
ipvsadm             ipvsadm           ipvsadm            a second opinion on what IPVS holds
nft                 nftables          nftables           looking at nf_tables from below iptables
conntrack           conntrack         conntrack-tools    connection tracking entries
modprobe            kmod              kmod               loading kernel modules
curl                curl              curl               HTTP clients in packet tests
ps                  procps            procps-ng          process listings, sysctl
strace              strace            strace             counting system calls
ping                iputils-ping      iputils            ICMP echo of virtual addresses
crun                crun              crun               the agent in a container, as a kubelet has it
'
VM='
qemu-system-x86_64  qemu-system-x86   qemu-system-x86    booting a kernel that has ip_vs
unshare             util-linux        util-linux         mount, unshare and nsenter inside that kernel
keepalived          keepalived        keepalived         another owner of virtual servers beside the agent
'
UML='
gcc                 gcc               gcc                compiling it
make                make              make               building it
flex                flex              flex               reading its configuration
bison               bison             bison              reading its configuration
bc                  bc                bc                 computing its constants
xz                  xz-utils          xz                 unpacking its source
taskset             util-linux        util-linux         keeping it on one CPU
'
EMULATORS='
qemu-aarch64-static  qemu-user-static    qemu-user-static   unit tests of arm64
qemu-s390x-static    qemu-user-static    qemu-user-static   unit tests of s390x, which is big endian
'
CLUSTER='
/usr/lib/cni/ptp    containernetworking-plugins  containernetworking-plugins  links and addresses of pods
'
NEIGHBOURS='
dbus-daemon         dbus-daemon       dbus-daemon        the bus that firewalld and NetworkManager are asked by
firewalld           firewalld         firewalld          a firewall that is a daemon
ufw                 ufw               ufw                a firewall of commands
/lib/systemd/systemd-networkd  systemd  systemd-networkd  a manager of links
NetworkManager      network-manager   NetworkManager     a manager of links
/usr/lib/frr/zebra  frr               frr                a daemon that reads and writes routes
'
BROWSER='
chromium-headless-shell  chromium-headless-shell  chromium-headless  a browser without a window
node                nodejs            nodejs             reading how high the page is
npm                 npm               nodejs-npm         the library that draws charts, pinned
'

say() { printf 'install: %s\n' "$*"; }

# have reports whether a command can be run; "command -v" also accepts a file that is not executable.
have() { [ -x "$(type -P "$1")" ]; }

# missing prints the rows on standard input whose command is not on this machine.
missing() {
	local command rest
	while read -r command rest; do
		if [ -n "$command" ] && ! have "$command"; then
			printf '%s %s\n' "$command" "$rest"
		fi
	done
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif have sudo; then
		sudo "$@"
	else
		say "cannot become root to run: $*" >&2
		return 1
	fi
}

# explain_by_hand is for distributions without apt-get: it names what to install and gives up.
explain_by_hand() {
	say 'this machine has no apt-get; please install by hand:' >&2
	local command debian other why
	while read -r command debian other why; do
		printf '  %-20s usually in package %-18s (%s)\n' "$command" "$other" "$why" >&2
	done <<<"$1"
	return 1
}

# without_services runs a command while packages are told not to start what they bring: ipvsadm ships a service that
# would restore rules at boot, and here it is only a tool. An existing policy of the machine is left alone.
without_services() {
	local policy=/usr/sbin/policy-rc.d status=0
	if [ -e "$policy" ]; then
		as_root "$@"
		return
	fi
	printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
	as_root chmod 755 "$policy"
	as_root "$@" || status=$?
	as_root rm -f "$policy"
	return "$status"
}

install_rows() {
	local rows=$1 command debian other why
	local -A packages=()
	while read -r command debian other why; do
		say "$debian: for $command ($why)"
		packages[$debian]=1
	done <<<"$rows"

	say 'reading package lists (apt-get update)'
	as_root apt-get -qq update
	say "installing ${!packages[*]}"
	without_services env DEBIAN_FRONTEND=noninteractive \
		apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends "${!packages[@]}"
}

rows_of() {
	case $1 in
	tools) printf '%s' "$TOOLS" ;;
	vm) printf '%s%s' "$TOOLS" "$VM" ;;
	uml) printf '%s' "$UML" ;;
	emulators) printf '%s' "$EMULATORS" ;;
	cluster) printf '%s' "$CLUSTER" ;;
	neighbours) printf '%s' "$NEIGHBOURS" ;;
	browser) printf '%s' "$BROWSER" ;;
	*)
		say "unknown group $1; the groups are: tools vm uml emulators cluster neighbours browser" >&2
		return 2
		;;
	esac
}

main() {
	local group rows lacking
	[ $# -gt 0 ] || set -- tools vm
	for group in "$@"; do
		rows=$(rows_of "$group")
		lacking=$(missing <<<"$rows")
		if [ -z "$lacking" ]; then
			say "$group: nothing missing"
			continue
		fi
		have apt-get || explain_by_hand "$lacking"
		install_rows "$lacking"
		lacking=$(missing <<<"$rows")
		if [ -n "$lacking" ]; then
			say "$group: still missing after installation: $(cut -d' ' -f1 <<<"$lacking" | tr '\n' ' ')" >&2
			return 1
		fi
		say "$group: complete"
	done
}

main "$@"
