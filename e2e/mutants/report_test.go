package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	of := func(n int, f fate, m mutant) (out []outcome) {
		for range n {
			out = append(out, outcome{mutant: m, fate: f, by: "TestA of a"})
		}
		return out
	}
	plain := mutant{Name: "a/x", Breaks: "It breaks.", File: "a/a.go"}
	equivalent := mutant{Name: "a/y", Breaks: "It breaks.", File: "a/a.go", Equivalent: "both are zero"}
	elsewhere := mutant{Name: "a/z", Breaks: "It breaks.", File: "a/a.go", NoticedBy: "packets: TestDrain"}
	for name, c := range map[string]struct {
		outcomes []outcome
		passed   bool
		want     string
	}{
		"all caught":                    {of(40, caught, plain), true, "caught: 40 of 40 (100 %)"},
		"two with a reason":             {append(of(38, caught, plain), append(of(1, survived, equivalent), of(1, survived, elsewhere)...)...), true, "noticed by: packets: TestDrain"},
		"one without a reason":          {append(of(39, caught, plain), of(1, survived, plain)...), false, "NO REASON"},
		"three with a reason":           {append(of(37, caught, plain), of(3, survived, equivalent)...), false, "caught: 37 of 40 (92 %)"},
		"one that does not compile":     {append(of(40, caught, plain), of(1, faulty, plain)...), false, "ERROR"},
		"one caught against its reason": {append(of(40, caught, plain), of(1, caught, equivalent)...), false, "but the list says equivalent: both are zero"},
		"none":                          {nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if passed := report(&out, c.outcomes); passed != c.passed || !strings.Contains(out.String(), c.want) {
				t.Errorf("passed is %t, want %t, and the report %q in:\n%s", passed, c.passed, c.want, &out)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		status int
		out    string
	}{
		"help":               {[]string{"-h"}, 0, "go run ./e2e/mutants -run '^agent/'"},
		"list":               {[]string{"-list", "-run", "^delta/"}, 0, "delta/changed-row-rests (internal/delta/tracker.go)"},
		"unknown flag":       {[]string{"-all"}, 2, "flag provided but not defined"},
		"argument":           {[]string{"agent"}, 2, "use -run REGEXP"},
		"bad expression":     {[]string{"-run", "("}, 2, "flag -run"},
		"expression of none": {[]string{"-run", "nothing"}, 2, "no mutant matches"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if status := start(context.Background(), c.args, &out, &out); status != c.status || !strings.Contains(out.String(), c.out) {
				t.Errorf("status %d, want %d, and %q in:\n%s", status, c.status, c.out, &out)
			}
		})
	}
}
