package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// calls is a fake of go test. Each call takes the first result whose beginning matches the call; the others are green.
type calls struct {
	made    []string
	results map[string][]testResult
	err     error
}

// describe names a call by its package and what distinguishes it.
func describe(r testRun) string {
	text := r.dir
	if r.only != "" {
		text += " only " + r.only
	}
	if len(r.skip) > 0 {
		text += " skip " + strings.Join(r.skip, ",")
	}
	if r.overlay != "" {
		text += " mutated"
	}
	return text
}

func (c *calls) test(_ context.Context, r testRun) (testResult, error) {
	call := describe(r)
	c.made = append(c.made, call)
	list := c.results[call]
	if len(list) == 0 {
		return testResult{}, c.err
	}
	c.results[call] = list[1:]
	return list[0], c.err
}

// checkout writes a repository of one file and returns a trial in it, of a mutant of that file.
func checkout(t *testing.T, c *calls) (*trial, mutant) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "a.go"), []byte("package a\n\nvar x = 1 < 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := mutant{Name: "a/x", Breaks: "It breaks.", File: "a/a.go", Old: "1 < 2", New: "1 > 2", Packages: []string{"b"}}
	return &trial{root: dir, temp: t.TempDir(), tests: dependents{"a": {"a", "c", scenarios}}, goTest: c.test}, m
}

func TestTrialStopsAtTheFirstRedPackage(t *testing.T) {
	for name, c := range map[string]struct {
		results map[string][]testResult
		want    []string
		by      string
		fate    fate
	}{
		"own package": {
			map[string][]testResult{"a mutated": {{verdict: red, test: "TestA/one"}}}, []string{"a mutated"}, "TestA/one of a", caught,
		},
		"named package": {
			map[string][]testResult{"b mutated": {{verdict: red}}}, []string{"a mutated", "b mutated"}, "the tests of b", caught,
		},
		"scenarios hang": {
			map[string][]testResult{"e2e/scenarios mutated": {{verdict: hung, test: "TestOnFakes"}}},
			[]string{"a mutated", "b mutated", "e2e/scenarios mutated"}, "TestOnFakes of e2e/scenarios (hangs)", caught,
		},
		"no test notices it": {
			nil, []string{"a mutated", "b mutated", "e2e/scenarios mutated", "c mutated"}, "", survived,
		},
		"it does not compile": {
			map[string][]testResult{"a mutated": {{verdict: broken, detail: "a.go:1: undefined: y\n"}}},
			[]string{"a mutated"}, "the mutant does not compile: a.go:1: undefined: y", faulty,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &calls{results: c.results}
			trial, m := checkout(t, fake)
			o := trial.try(t.Context(), m)
			if !slices.Equal(fake.made, c.want) || o.by != c.by || o.fate != c.fate {
				t.Errorf("it called %q and found %d by %q, want %q and %d by %q", fake.made, o.fate, o.by, c.want, c.fate, c.by)
			}
		})
	}
}

// TestTrialDoubtsFlakyTests checks that a test that fails without the mutant, or not twice, catches nothing.
func TestTrialDoubtsFlakyTests(t *testing.T) {
	failed := testResult{verdict: red, test: "TestA"}
	for name, c := range map[string]struct {
		results map[string][]testResult
		fate    fate
		doubted int
	}{
		"fails with it and passes without it": {
			map[string][]testResult{"a mutated": {failed}, "a only TestA mutated": {failed}}, caught, 0,
		},
		"fails without it": {
			map[string][]testResult{"a mutated": {failed}, "a only TestA": {failed}}, survived, 1,
		},
		"passes with it once": {
			map[string][]testResult{"a mutated": {failed}}, survived, 1,
		},
		"another test catches it": {
			map[string][]testResult{
				"a mutated": {failed}, "a only TestA": {failed},
				"a skip TestA mutated": {{verdict: red, test: "TestB/x"}}, "a only TestB mutated": {{verdict: red, test: "TestB/x"}},
			}, caught, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &calls{results: c.results}
			trial, m := checkout(t, fake)
			trial.confirm = true
			if o := trial.try(t.Context(), m); o.fate != c.fate || len(o.doubted) != c.doubted {
				t.Errorf("it found %d and doubted %q after %q", o.fate, o.doubted, fake.made)
			}
		})
	}
}

func TestTrialLeavesTheCheckoutAlone(t *testing.T) {
	var overlay, mutated string
	fake := func(_ context.Context, r testRun) (testResult, error) {
		overlay = r.overlay
		data, err := os.ReadFile(r.overlay)
		if err != nil {
			return testResult{}, err
		}
		var list struct{ Replace map[string]string }
		if err := json.Unmarshal(data, &list); err != nil {
			return testResult{}, err
		}
		for _, file := range list.Replace {
			text, err := os.ReadFile(file)
			if err != nil {
				return testResult{}, err
			}
			mutated = string(text)
		}
		return testResult{verdict: red}, nil
	}
	trial, m := checkout(t, &calls{})
	trial.goTest = fake
	if o := trial.try(t.Context(), m); o.fate != caught {
		t.Fatal(o)
	}
	if want := "package a\n\nvar x = 1 > 2\n"; mutated != want || filepath.Dir(overlay) != trial.temp {
		t.Errorf("the overlay %s has %q, want %q", overlay, mutated, want)
	}
	if text, err := os.ReadFile(filepath.Join(trial.root, m.File)); err != nil || string(text) != "package a\n\nvar x = 1 < 2\n" {
		t.Errorf("the checkout has %q (%v)", text, err)
	}
}

func TestTrialRefusesTextThatDoesNotOccurOnce(t *testing.T) {
	trial, m := checkout(t, &calls{})
	for old, want := range map[string]string{"1 <= 2": "occurs 0 times", "a": "occurs 4 times"} {
		m.Old = old
		if o := trial.try(t.Context(), m); o.fate != faulty || !strings.Contains(o.by, want) {
			t.Error(o)
		}
	}
}

func TestTrialReportsThatGoTestCannotRun(t *testing.T) {
	trial, m := checkout(t, &calls{err: errors.New("no go")})
	if o := trial.try(t.Context(), m); o.fate != faulty || o.by != "no go" {
		t.Error(o)
	}
}

// The tests of a part are often in the package above it, and go before all others.
func TestOrderOfPackages(t *testing.T) {
	m := mutant{File: "internal/a/b/c.go", Packages: []string{"ipset"}}
	got := m.order(dependents{"internal/a/b": {"cmd", "e2e/scenarios", "internal/a", "internal/a/b", "ipset"}})
	want := []string{"internal/a/b", "internal/a", "ipset", "e2e/scenarios", "cmd"}
	if !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}
