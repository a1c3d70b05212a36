#!/usr/bin/env bash
# failed.sh LOG: from the output of "go test -v", the names of the tests and packages that failed.
awk '/^ *--- FAIL: / { print $3 } /^FAIL\t/ { print $2 } /^panic: / { print }' "$1" | paste -sd ' '
