#!/usr/bin/env bash
# reproducible.sh: builds the program in two copies of the sources, in directories of other names, and compares the bytes.
#   FRESH=1   the second build starts from an empty cache, so that everything is compiled twice: minutes instead of seconds
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
version=$(git describe --tags --always --dirty 2>/dev/null || true) # the copies have no history

# copy DIRECTORY: the sources as they are, with what is not committed yet.
copy() {
	mkdir -p "$1"
	git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
		[ ! -e "$file" ] || printf '%s\0' "$file"
	done | tar --null -T - -cf - | tar -xf - -C "$1"
}

copy "$work/one"
copy "$work/another/place"
start=$SECONDS
make -C "$work/one" build VERSION="$version" >/dev/null
[ -z "${FRESH:-}" ] || export GOCACHE=$work/cache
make -C "$work/another/place" build VERSION="$version" >/dev/null
if ! cmp "$work/one/bin/kube-ipvs" "$work/another/place/bin/kube-ipvs"; then
	echo 'reproducible: FAILED: two builds of the same sources differ'
	exit 1
fi
echo "reproducible: $(sha256sum <"$work/one/bin/kube-ipvs" | cut -d' ' -f1) twice ($version, $(go env GOVERSION), $((SECONDS - start))s)"
