package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// The share of mutants that have to be caught, in percent: 38 of 40.
const required = 95

// report prints the summary and reports whether enough mutants are caught and each of the others has a reason.
func report(out io.Writer, all []outcome) (passed bool) {
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MUTANT\tRESULT\tSECONDS")
	found := 0
	passed = len(all) > 0
	for _, o := range all {
		result := o.verdict()
		switch {
		case o.fate == caught && o.mutant.reason() != "":
			passed, result = false, result+", but the list says "+o.mutant.reason()
			found++
		case o.fate == caught:
			found++
		case o.fate == faulty:
			passed = false
		}
		result, _, _ = strings.Cut(result, "\n") // a compiler prints more
		fmt.Fprintf(table, "%s\t%s\t%.1f\n", o.mutant.Name, result, o.took.Seconds())
	}
	_ = table.Flush() // an error of out shows in what is printed next
	for _, o := range all {
		if !o.survived() {
			continue
		}
		why := o.mutant.reason()
		if why == "" {
			passed, why = false, "NO REASON in the list: write a test, or record why none can notice it"
		}
		fmt.Fprintf(out, "\nsurvived: %s (%s)\n    %s\n    %s\n", o.mutant.Name, o.mutant.File, o.mutant.Breaks, why)
	}
	if len(all) > 0 {
		fmt.Fprintf(out, "\ncaught: %d of %d (%d %%), required: %d %%\n", found, len(all), 100*found/len(all), required)
	}
	return passed && 100*found >= required*len(all)
}
