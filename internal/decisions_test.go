package internal_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	decisionHeading = regexp.MustCompile(`(?m)^## (.+)$`)
	decisionTest    = regexp.MustCompile(`\b(Test\w+) \(([\w/-]+)\)`)
	scenarioFile    = regexp.MustCompile(`[\w./-]+\.txtar`)
	decisionRef     = regexp.MustCompile(`DECISIONS\.md, `)
	outsideRef      = regexp.MustCompile(`\b(?:[Cc]ontract (?:sections?|\d)|[Dd]ecisions? \d)`)
	// foldMargin matches a line break with the comment marker of the next line.
	foldMargin = regexp.MustCompile(`\s*\n[\t ]*(?://+|#+)?[\t ]*`)
)

// decisions returns the text of each entry of DECISIONS.md by its heading.
func decisions(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("DECISIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	marks := decisionHeading.FindAllSubmatchIndex(text, -1)
	for i, m := range marks {
		end := len(text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		all[string(text[m[2]:m[3]])] = string(text[m[1]:end])
	}
	if len(all) != len(marks) {
		t.Errorf("%d headings, %d of them different", len(marks), len(all))
	}
	return all
}

// documented calls f with each Go file, page and scenario of the repository, as one line
// without comment markers.
func documented(t *testing.T, f func(path, text string)) {
	t.Helper()
	kinds := []string{".go", ".md", ".sh", ".txt", ".txtar", ".yaml"}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "node_modules"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains(kinds, filepath.Ext(path)) || d.Name() == "decisions_test.go":
			return nil
		}
		text, err := os.ReadFile(path)
		f(path, foldMargin.ReplaceAllString(string(text), " "))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDecisionsNameTests requires that each decision names a test or a scenario, and that
// what it names exists.
func TestDecisionsNameTests(t *testing.T) {
	for name, text := range decisions(t) {
		text = strings.Join(strings.Fields(text), " ")
		tests, scenarios := decisionTest.FindAllStringSubmatch(text, -1), scenarioFile.FindAllString(text, -1)
		if len(tests)+len(scenarios) == 0 {
			t.Errorf("%s: names no test", name)
		}
		for _, m := range tests {
			if !hasTest(t, m[2], m[1]) {
				t.Errorf("%s: %s is not in %s", name, m[1], m[2])
			}
		}
		for _, file := range scenarios {
			if _, err := os.Stat(filepath.Join("..", file)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// hasTest reports whether a directory of the repository declares the test.
func hasTest(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), "\nfunc "+test+"(")
	})
}

// TestReferencesToDecisions requires that a reference to DECISIONS.md names one of its headings. No
// text may give the number of a decision or the section of a contract: both were documents outside
// the repository.
func TestReferencesToDecisions(t *testing.T) {
	names := slices.Collect(maps.Keys(decisions(t)))
	for i, name := range names {
		names[i] = regexp.QuoteMeta(name)
	}
	known := regexp.MustCompile(`^(?:` + strings.Join(names, "|") + `)\b`)
	documented(t, func(path, text string) {
		for _, ref := range outsideRef.FindAllString(text, -1) {
			t.Errorf("%s: %q is not in the repository", path, ref)
		}
		for _, at := range decisionRef.FindAllStringIndex(text, -1) {
			if rest := text[at[1]:]; !known.MatchString(rest) {
				t.Errorf("%s: DECISIONS.md has no heading %.40q", path, rest)
			}
		}
	})
}
