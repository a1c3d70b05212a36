#!/usr/bin/env bash
# sbom.sh PROGRAM VERSION: writes PROGRAM.cdx.json, and holds it against what the Go tool says the program is made of.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=$1 version=$2 out=$1.cdx.json
go run ./e2e/sbom "$program" "$version" >"$out.new"
modules=0
while read -r path version; do
	modules=$((modules + 1))
	if ! grep -qF "\"pkg:golang/$path@${version//+/%2B}\"" "$out.new"; then
		echo "sbom: FAILED: $path $version is in $program, and not in $out"
		exit 1
	fi
done < <(go version -m "$program" | awk '$1 == "dep" && last { print last } $1 == "dep" || $1 == "=>" { last = $2 " " $3 } END { print last }')
[ "$modules" -gt 0 ] || { echo "sbom: FAILED: $program names no modules"; exit 1; }
mv "$out.new" "$out"
echo "sbom: $out: $modules modules, the program and Go"
