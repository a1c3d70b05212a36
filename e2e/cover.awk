# Reads a coverage profile of go test and prints how much of each room is run by its tests, lowest first.
# A line is FILE:FROM,TO STATEMENTS COUNT; blocks that several tests report are there more than once.
NR > 1 {
	split($1, place, ":")
	room = place[1]
	sub(/^[^\/]*\/[^\/]*\/[^\/]*\//, "", room)
	sub(/\/[^\/]*$/, "", room)
	if (!($1 in statements)) {
		statements[$1] = $2
		total[room] += $2
	}
	if ($3 > 0 && !($1 in run)) {
		run[$1] = 1
		covered[room] += $2
	}
}
END {
	printf "%-38s %10s %9s\n", "room", "statements", "covered"
	for (room in total) {
		printf "%-38s %10d %8.1f%%\n", room, total[room], 100 * covered[room] / total[room] | "sort -k3,3n -k1,1"
		all += total[room]
		done += covered[room]
	}
	close("sort -k3,3n -k1,1")
	printf "%-38s %10d %8.1f%%\n", "all", all, 100 * done / all
}
