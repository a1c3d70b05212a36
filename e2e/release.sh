#!/usr/bin/env bash
# release.sh: makes the files of a release twice, from two copies of the sources in directories of other names, compares them,
# and installs the package in a throw-away guest. `make release` sets all variables.
#   SNAPSHOT   not empty: of any state of the sources; else only of a commit that has a tag vX.Y.Z and no changes
#   VERSION COMMIT DATE LDFLAGS    what the program says of itself, and how the linker tells it
#   ARCHES     architectures as Go names them; empty: all
#   NFPM       the program that makes packages
#   GUEST      no: the package is not installed anywhere
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=bin/release

say() { echo "release: $*"; }

if [ -z "${SNAPSHOT:-}" ] && ! [[ $VERSION =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ && $VERSION != *-g* ]]; then
	say "$VERSION is no release: tag the commit vX.Y.Z, or say SNAPSHOT=1"
	exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# make_files SOURCES VERSION LDFLAGS OUT ARCHES
make_files() {
	(cd "$1" && "$work/release" -version "$2" -commit "$COMMIT" -date "$DATE" -ldflags "$3" -nfpm "$NFPM" -out "$4" ${5:+-arches "$5"})
}

# copy DIRECTORY: the sources as they are, with what is not committed yet.
copy() {
	mkdir -p "$1"
	git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
		[ ! -e "$file" ] || printf '%s\0' "$file"
	done | tar --null -T - -cf - | tar -xf - -C "$1"
}

# install_package: the deb of this machine replaces one of an older version.
install_package() {
	local arch older=v0.0.0-0 reason=''
	arch=$(go env GOARCH)
	[ "${GUEST:-}" != no ] || reason='GUEST=no'
	for tool in dpkg-deb /lib/systemd/systemd; do
		command -v "$tool" >/dev/null || reason="this machine has no $tool, which the guest would use"
	done
	ls "$out"/*_"$arch".deb >/dev/null 2>&1 || reason="there is no package for $arch"
	if [ -n "$reason" ]; then
		say "skipped: installing, upgrading and removing the package: $reason"
		return
	fi
	make_files . "$older" "${LDFLAGS/main.version=$VERSION/main.version=$older}" "$work/older" "$arch" >/dev/null
	CGO_ENABLED=0 go build -trimpath -o bin/ ./e2e/vm/vmrun ./e2e/backend/cmd/backend
	bin/vmrun -m 2500 -timeout 20m ${KERNEL:+-accel "$KERNEL"} -share "$work/older:/run/older" -share "$out:/run/newer" -share e2e/release:/run/scripts \
		-copy bin/backend:/run/bin/backend -share /usr:/run/usr -share /etc:/run/etc -share /var/lib/dpkg:/run/dpkg -- \
		bash -c "bash /run/scripts/guest.sh /run/older/*.deb /run/newer/*_$arch.deb /run/bin/backend $VERSION"
}

go build -o "$work/release" ./e2e/release
make_files . "$VERSION" "$LDFLAGS" "$out" "${ARCHES:-}"
copy "$work/another/place"
make_files "$work/another/place" "$VERSION" "$LDFLAGS" "$work/again" "${ARCHES:-}" >/dev/null
if ! diff "$out/SHA256SUMS" "$work/again/SHA256SUMS"; then
	say 'FAILED: two builds of the same sources differ'
	exit 1
fi
say 'two builds, in directories of different names, have the same bytes'
install_package
