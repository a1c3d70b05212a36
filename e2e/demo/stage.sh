# stage.sh: how the demo shows what it does and how it notices that something did not behave. Sourced by run.sh.
# shellcheck shell=bash

width=118 # of a line; longer ones are folded
steps=0   # headlines so far
title=    # of the current step
out=      # output of the last run

if [ "${DEMO_COLOR:-}" = 1 ]; then
	bold=$'\e[1m' cyan=$'\e[1;36m' green=$'\e[32m' red=$'\e[1;31m' plain=$'\e[0m'
else
	bold='' cyan='' green='' red='' plain=''
fi

headline() {
	steps=$((steps + 1))
	title=$*
	printf '\n%s== %d. %s%s\n' "$cyan" "$steps" "$title" "$plain"
}

note() { printf '%s\n' "$*"; }

# command_line prints a command as a person would type it.
command_line() { printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"; }

# fold_lines breaks long lines at a blank; what follows is indented.
fold_lines() {
	awk -v width="$width" '{
		indent = ""
		while (length($0) > width) {
			cut = width
			while (cut > width / 2 && substr($0, cut, 1) != " ") cut--
			print substr($0, 1, cut)
			if (indent == "") { indent = "      "; width -= 6 }
			$0 = indent substr($0, cut + 1)
		}
		print
		if (indent != "") width += 6
	}'
}

# attempt shows a command line, runs it and keeps its output in $out. Its status is the command's.
attempt() {
	local status=0
	command_line "$1"
	out=$(eval "$1" 2>&1) || status=$?
	return "$status"
}

# run shows a command line and its output. With a second argument the output passes through that filter for the eye.
run() {
	local status=0
	attempt "$1" || status=$?
	if [ -n "$out" ]; then
		"${2:-fold_lines}" <<<"$out"
	fi
	[ "$status" -eq 0 ] || broken "the last command ended with status $status"
}

# run_refused is run for a command that has to fail.
run_refused() {
	local status=0
	attempt "$1" || status=$?
	fold_lines <<<"$out"
	[ "$status" -ne 0 ] || broken 'the last command succeeded and should not'
}

# check prints a claim, and ends the demo when the command after it fails.
check() {
	local claim=$1
	shift
	"$@" || broken "this is not so: $claim"
	printf '   %sok%s  %s\n' "$green" "$plain" "$claim"
}

# broken ends the demo with what a person needs to look further.
broken() {
	printf '\n%sThe demo failed in step %d, %s:%s\n  %s\n' "$red" "$steps" "$title" "$plain" "$*"
	if [ -s agent.log ]; then
		printf '\nThe end of the agent'\''s log:\n'
		tail -n 15 agent.log | fold_lines
	fi
	exit 1
}

# within SECONDS COMMAND... repeats a command until it succeeds; its status is 1 when it never did. Emulated machines are slow, so
# limits are generous and only failures wait for them. It counts tries: the clock of an emulated machine may jump.
within() {
	local tries=$(($1 * 50))
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.02
	done
}

# now_ms is a clock in milliseconds that starts no process.
now_ms() {
	local us=${EPOCHREALTIME/[^0-9]/}
	printf -v "$1" '%d' "$((us / 1000))"
}

# bars adds a bar to each line of "uniq -c".
bars() {
	awk '
		{ count[NR] = $1; name[NR] = $2; total += $1 }
		END {
			for (i = 1; i <= NR; i++) {
				bar = sprintf("%*s", int(count[i] * 60 / total + 0.5), "")
				gsub(/ /, "#", bar)
				printf "%7d %-8s %s\n", count[i], name[i], bar
			}
		}'
}
