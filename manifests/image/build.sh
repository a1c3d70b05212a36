#!/usr/bin/env bash
# Builds the image with whatever is here: docker with buildx, else podman, else buildah.
#   IMAGE      name and tag
#   PLATFORMS  comma list such as linux/amd64,linux/arm64; empty: this machine's
#   PUSH       not empty: push it to where its name says
#   VERSION    what kube-ipvs --version prints
# The program in it has the same bytes whenever it is built of one commit by one Go. The image says it is of the commit's time,
# or of SOURCE_DATE_EPOCH; what Debian's packages bring is that of the day.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

: "${IMAGE:?is the name of the image, such as kube-ipvs:dev}" "${PLATFORMS:=}" "${PUSH:=}" "${VERSION:=}"

: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH # BuildKit reads it from the environment

build=(--file manifests/image/Dockerfile --build-arg "VERSION=$VERSION")
[[ -z $PLATFORMS ]] || build+=(--platform "$PLATFORMS")

several() { [[ $PLATFORMS == *,* ]]; }

# A docker client whose daemon is away is no reason to stop.
has_docker() { docker buildx version && docker info; } >/dev/null 2>&1

with_docker() {
	local out=--load
	[[ -z $PUSH ]] || out=--push
	if several && [[ -z $PUSH ]]; then
		echo 'image: docker keeps an image of one platform only: add PUSH=1, or ask for one platform' >&2
		exit 1
	fi
	docker buildx build "${build[@]}" --tag "$IMAGE" "$out" .
}

# machine is this one as images name it.
machine() {
	case $(uname -m) in
	x86_64) echo linux/amd64 ;;
	aarch64) echo linux/arm64 ;;
	*) echo "linux/$(uname -m)" ;;
	esac
}

# podman and buildah take the same words. Not all their versions know BUILDPLATFORM; those would compile under emulation.
with_buildah() {
	local tool=$1
	build+=(--build-arg "BUILDPLATFORM=$(machine)" --timestamp "$SOURCE_DATE_EPOCH")
	if ! several; then
		"$tool" build "${build[@]}" --tag "$IMAGE" .
		[[ -z $PUSH ]] || "$tool" push "$IMAGE"
		return
	fi
	"$tool" manifest rm "$IMAGE" >/dev/null 2>&1 || true # a list of an earlier build would grow
	"$tool" build "${build[@]}" --manifest "$IMAGE" .
	[[ -z $PUSH ]] || "$tool" manifest push --all "$IMAGE" "docker://$IMAGE"
}

if has_docker; then
	with_docker
elif command -v podman >/dev/null; then
	with_buildah podman
elif command -v buildah >/dev/null; then
	with_buildah buildah
else
	echo 'image: needs one of docker (with buildx, and its daemon running), podman, buildah' >&2
	exit 1
fi
echo "image: $IMAGE ($VERSION)${PLATFORMS:+ for $PLATFORMS}${PUSH:+, pushed}"
