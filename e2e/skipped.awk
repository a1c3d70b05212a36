# skipped.awk: from the output of "go test -v", how many tests were skipped for which reason.
/^=== (RUN|NAME|CONT)/ { test = $3 }
/^ +[A-Za-z0-9_]+\.go:[0-9]+: / { reason[test] = $0 }
/^ *--- SKIP: / {
	text = reason[$3]
	sub(/^ *[A-Za-z0-9_]+\.go:[0-9]+: /, "", text)
	if (text ~ /^WORK=/)
		text = "not for this driver, as the scenario file says"
	count[text == "" ? "no reason printed: " $3 : text]++
}
END {
	for (text in count)
		printf "skipped %3d: %s\n", count[text], text
}
