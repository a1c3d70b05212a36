package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A mutant is one changed condition of the program.
type mutant struct {
	// Name identifies the mutant: the package and the behaviour that changes.
	Name string
	// Breaks states in one sentence what a node does wrong under the mutant.
	Breaks string
	// File is the changed file, by its path from the root of the repository.
	File string
	// Old is the original text, which occurs exactly once in the file, and New replaces it.
	Old, New string
	// Packages are directories whose tests run right after those of the mutated package.
	Packages []string
	// Equivalent is the reason why no test can tell the mutant from the original; empty where a test can.
	Equivalent string
	// NoticedBy names the test level and the test that catch the mutant where no test on fakes can.
	NoticedBy string
}

// dir returns the directory of the mutated package.
func (m mutant) dir() string { return path.Dir(m.File) }

// reason returns why the mutant may survive; empty where it may not.
func (m mutant) reason() string {
	switch {
	case m.Equivalent != "":
		return "equivalent: " + m.Equivalent
	case m.NoticedBy != "":
		return "noticed by: " + m.NoticedBy
	}
	return ""
}

// mutate returns the mutated text of the file.
func (m mutant) mutate(root string) ([]byte, error) {
	original, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	if n := strings.Count(string(original), m.Old); n != 1 {
		return nil, fmt.Errorf("mutant %s: the old text occurs %d times in %s, not once", m.Name, n, m.File)
	}
	return []byte(strings.Replace(string(original), m.Old, m.New, 1)), nil
}

// scenarios is the package whose tests run the whole agent on fakes.
const scenarios = "e2e/scenarios"

// order lists the packages whose tests are run, by directory. The mutated package comes first, then
// those above it that use it, since the tests of a part are often there. Those that the list names
// follow, then the scenarios, and then all others whose tests contain the mutated package.
func (m mutant) order(tests dependents) []string {
	all := []string{m.dir()}
	for dir := path.Dir(m.dir()); dir != "."; dir = path.Dir(dir) {
		if slices.Contains(tests[m.dir()], dir) {
			all = append(all, dir)
		}
	}
	all = slices.Concat(all, m.Packages, []string{scenarios}, tests[m.dir()])
	var out []string
	for _, dir := range all {
		if !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// allMutants returns the whole list.
func allMutants() []mutant {
	return slices.Concat(planMutants, catalogMutants, deltaMutants, dataplaneMutants, ipvsMutants, iptablesMutants,
		agentMutants, sourceMutants, kernelMutants)
}
