#!/usr/bin/env bash
# build.sh: builds the image without a daemon and without root, as a layout of the Open Container Initiative in bin/image and as one
# file, bin/image.tar, for `docker load`, `podman load`, `ctr images import` and `kind load image-archive`.
#   IMAGE      name and tag
#   PLATFORMS  comma list such as linux/amd64,linux/arm64; empty: this machine's
#   PUSH       not empty: CRANE pushes it to where its name says
#   VERSION COMMIT DATE LDFLAGS    what the program says of itself, and how the linker tells it
# The image has the same bytes whenever it is built of one commit by one Go with the same packages of Debian; they stay in CACHE
# until REFRESH=1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

: "${IMAGE:?is the name of the image, such as kube-ipvs:dev}" "${PLATFORMS:=linux/$(go env GOARCH)}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sources=()
for platform in ${PLATFORMS//,/ }; do
	arch=${platform#linux/}
	manifests/image/base.sh "$arch" "$work/$arch"
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOFLAGS='' go build -trimpath -buildvcs=false -ldflags "-s -w $LDFLAGS" -o "$work/kube-ipvs-$arch" ./cmd/kube-ipvs
	sources+=("$platform=$work/$arch=$work/kube-ipvs-$arch")
done
go run ./e2e/image -name "$IMAGE" -version "$VERSION" -commit "$COMMIT" -date "$DATE" -out bin/image "${sources[@]}"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="$DATE" -cf bin/image.tar -C bin/image .

# The programs in it start, where this machine can run them; ipvsadm wants a kernel with IPVS.
arch=$(go env GOARCH)
if [ -d "$work/$arch" ] && [ "$(id -u)" = 0 ]; then
	mkdir -p "$work/$arch/usr/local/bin"
	cp "$work/kube-ipvs-$arch" "$work/$arch/usr/local/bin/kube-ipvs"
	for words in 'kube-ipvs version' 'iptables-nft --version' 'ip6tables-legacy --version' 'modprobe --version' 'ipset --version' 'sleep 0' 'sh -c :'; do
		# shellcheck disable=SC2086 # a command line
		PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot "$work/$arch" $words >"$work/out" 2>&1 || {
			cat "$work/out"
			echo "image: FAILED: in the image, $words ends with an error"
			exit 1
		}
	done
	echo 'image: the programs in it start'
fi
[ -z "${PUSH:-}" ] || "$CRANE" push bin/image "$IMAGE"
echo "image: $IMAGE ($VERSION) for $PLATFORMS: bin/image.tar${PUSH:+, pushed}"
