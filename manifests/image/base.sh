#!/usr/bin/env bash
# base.sh ARCH DIRECTORY: unpacks what the image has beside the program: iptables with both backends, kmod, ipset and ipvsadm with
# their libraries, for an architecture as Go names it. The packages come from Debian 12 by apt-get, with lists and a cache of
# their own; nothing is installed, and no script of a package runs. Shell and sleep are those of busybox.
#   DEBIAN_MIRROR, DEBIAN_SECURITY_MIRROR    where they come from
#   CACHE                                    where packages stay: a second run needs no network
set -euo pipefail
arch=$1 root=$2
: "${CACHE:?is the cache directory}" "${DEBIAN_MIRROR:=http://deb.debian.org/debian}" "${DEBIAN_SECURITY_MIRROR:=http://deb.debian.org/debian-security}"

packages=(iptables libip4tc2 libip6tc2 libxtables12 libmnl0 libnftnl11 libnetfilter-conntrack3 libnfnetlink0 netbase
	kmod libkmod2 liblzma5 libssl3 libzstd1 ipset libipset13 ipvsadm libnl-3-200 libnl-genl-3-200 libpopt0 libc6 libgcc-s1 busybox-static)
# Not needed in a container: documentation but for licenses, translations, and encodings of characters.
unwanted=(usr/share/man usr/share/info usr/share/locale usr/share/lintian usr/share/bug usr/share/bash-completion etc/init.d etc/default
	'usr/lib/*/gconv' 'usr/lib/*/audit' 'usr/lib/*/engines-3' 'usr/lib/*/ossl-modules' 'usr/lib/*/libssl.so.3')

case $arch in
amd64 | arm64 | s390x) debian=$arch ;;
ppc64le) debian=ppc64el ;;
*) echo "image: Debian 12 has no $arch" >&2 && exit 1 ;;
esac

own=$CACHE/debian-12-$debian
mkdir -p "$own"/{lists/partial,archives/partial,debs} "$root"
key=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e $key ] || { echo "image: no $key: install debian-archive-keyring" >&2 && exit 1; }
printf 'deb [signed-by=%s] %s %s main\n' $key "$DEBIAN_MIRROR" bookworm $key "$DEBIAN_SECURITY_MIRROR" bookworm-security >"$own/sources.list"
apt() {
	apt-get -qq -o "APT::Architecture=$debian" -o "APT::Architectures=$debian" -o "Dir::Etc::SourceList=$own/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o "Dir::State::Lists=$own/lists" -o Dir::State::Status=/dev/null -o "Dir::Cache=$own" -o APT::Sandbox::User=root "$@"
}
if [ "$(cat "$own/wanted" 2>/dev/null)" != "${packages[*]}" ] || [ -n "${REFRESH:-}" ]; then
	apt update
	rm -f "$own"/debs/*
	(cd "$own/debs" && apt download "${packages[@]}")
	echo "${packages[*]}" >"$own/wanted"
fi
[ "$(ls "$own"/debs/*.deb | wc -l)" = ${#packages[@]} ] || { echo "image: not all packages are in $own/debs" >&2 && exit 1; }
for deb in "$own"/debs/*.deb; do
	dpkg-deb --extract "$deb" "$root"
	mkdir -p "$root/var/lib/dpkg/status.d" # where scanners look for what an image is made of
	dpkg-deb --field "$deb" >"$root/var/lib/dpkg/status.d/$(dpkg-deb --field "$deb" Package)"
done
for path in "${unwanted[@]}"; do
	# shellcheck disable=SC2086 # a pattern
	rm -rf "$root"/$path
done
find "$root/usr/share/doc" ! -type d ! -name copyright -delete
find "$root" -type d -empty -delete
mkdir -p "$root"/{proc,sys,dev,run,tmp,etc}
ln -s busybox "$root/bin/sh"
ln -s busybox "$root/bin/sleep"
