# compile.sh: sourced by what builds programs for the place where IPVS is.

# compile COMMAND ARGUMENT...: go, for the guest: static, or with RACE=1 with the race detector, whose C library the guest's tools
# bring along. What it finds in an agent fails the test, see e2e/races.
compile() {
	if [ -n "${RACE:-}" ]; then
		CGO_ENABLED=1 go "$1" -race -tags netgo,osusergo "${@:2}"
	else
		CGO_ENABLED=0 go "$@"
	fi
}

# patience MINUTES: so many, and six times as many for the race detector, which makes programs slow.
patience() {
	if [ -n "${RACE:-}" ]; then
		echo $(($1 * 6))
	else
		echo "$1"
	fi
}
