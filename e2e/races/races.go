// Package races finds what the race detector has written among what a program printed. A program that ends in order tells by its exit
// status, 66, that there was something; one that is killed leaves nothing but its output.
package races

import "strings"

// A report of the detector, as its runtime writes it: a heading below one rule, and a rule at the end.
const (
	heading = "WARNING: DATA RACE"
	rule    = "=================="
)

// In returns the reports among the lines of an output. Each goes from its heading to its rule, or
// to the end of the output if the program ended before it wrote the rule. Lines of the log that
// were written meanwhile are among them. It is empty for a program that was built without the
// detector.
func In(output string) string {
	var found strings.Builder
	within := false
	for line := range strings.Lines(output) {
		if strings.Contains(line, heading) {
			within = true
		} else if strings.Contains(line, rule) {
			within = false
		}
		if within {
			found.WriteString(line)
		}
	}
	return found.String()
}
