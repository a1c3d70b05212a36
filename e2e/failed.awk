# failed.awk: from the output of "go test -v", what each failed test wrote, at most its last 60 lines.
function forget() { from = till = 0 }
function tell(    i) {
	for (i = till - from > 60 ? till - 60 : from; i < till; i++) {
		print line[i]
		delete line[i]
	}
	forget()
}
/^=== (CONT|PAUSE)/ || /^ +--- (PASS|SKIP): / { next }
/^--- (PASS|SKIP): / { forget(); next }
{ line[till++] = $0 }
/^--- FAIL: / || /^FAIL\t/ { tell() }
/^ok  \t/ { forget() }
END { tell() }
