package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// TestEachMutantAppliesOnce checks that the old text of each mutant occurs exactly once, and that the mutated file is Go.
func TestEachMutantAppliesOnce(t *testing.T) {
	for _, m := range allMutants() {
		t.Run(m.Name, func(t *testing.T) {
			text, err := m.mutate(root)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.ParseFile(token.NewFileSet(), m.File, text, parser.SkipObjectResolution); err != nil {
				t.Errorf("the mutated file is not Go: %v", err)
			}
			if m.Old == m.New {
				t.Error("the new text is the old one")
			}
		})
	}
}

func TestMutantsAreDescribed(t *testing.T) {
	name := regexp.MustCompile(`^[a-z]+/[a-z]+(-[a-z]+)*$`)
	var seen []string
	for _, m := range allMutants() {
		switch {
		case !name.MatchString(m.Name):
			t.Errorf("%s: the name is not of the form package/behaviour", m.Name)
		case slices.Contains(seen, m.Name):
			t.Errorf("%s: the name is there twice", m.Name)
		case strings.Count(m.Breaks, ". ") > 0 || !strings.HasSuffix(m.Breaks, "."):
			t.Errorf("%s: %q is not one sentence", m.Name, m.Breaks)
		case strings.HasSuffix(m.File, "_test.go"):
			t.Errorf("%s: %s is a test", m.Name, m.File)
		case m.Equivalent != "" && m.NoticedBy != "":
			t.Errorf("%s: an equivalent mutant is noticed by no test", m.Name)
		}
		seen = append(seen, m.Name)
		for _, dir := range m.Packages {
			if tests, _ := filepath.Glob(filepath.Join(root, dir, "*_test.go")); len(tests) == 0 {
				t.Errorf("%s: there are no tests in %s", m.Name, dir)
			}
		}
	}
}

// TestMutantsAreSpread checks that the list covers each package whose behaviour matters to a node.
func TestMutantsAreSpread(t *testing.T) {
	count := map[string]int{}
	for _, m := range allMutants() {
		count[m.dir()]++
	}
	for _, dir := range []string{
		"internal/plan", "internal/catalog", "internal/delta", "internal/dataplane", "internal/dataplane/ipvs",
		"internal/dataplane/iptables", "internal/agent", "internal/source", "internal/source/file", "internal/source/kube",
		"internal/kernel/vserver", "ipset", "internal/kernel/conntrack",
	} {
		if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
			t.Error(err)
		}
		if count[dir] < 3 {
			t.Errorf("%d mutants of %s, want 3 or more", count[dir], dir)
		}
	}
	if all := len(allMutants()); all < 40 {
		t.Errorf("%d mutants, want 40 or more", all)
	}
}
