package vservertest

import (
	"slices"
	"strings"
)

// SortSave puts the lines of an `ipvsadm -Sn` text in an order that does not
// depend on who printed it: all servers, then all destinations, both sorted as
// text. `ipvsadm -R` still reads it, and two texts of equal tables are equal.
func SortSave(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines) // "-A" comes before "-a"
	return strings.Join(lines, "")
}
