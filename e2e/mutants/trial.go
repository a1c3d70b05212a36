package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// fate is what became of a mutant.
type fate uint8

const (
	caught   fate = iota // a test failed, or hung
	survived             // all tests passed
	faulty               // the list is wrong: the mutant cannot be made, or does not compile
)

// An outcome is the result of one trial.
type outcome struct {
	mutant mutant
	fate   fate
	// by names what caught the mutant, or what is wrong with the list.
	by string
	// doubted are tests that failed under the mutant and did not do so reliably, or failed without it, too.
	doubted []string
	took    time.Duration
}

// survived reports whether no test noticed the mutant.
func (o outcome) survived() bool { return o.fate == survived }

// String returns the line of progress.
func (o outcome) String() string {
	seconds := fmt.Sprintf("%.1f s", o.took.Seconds())
	line := fmt.Sprintf("%s: %s, %s", o.mutant.Name, o.verdict(), seconds)
	if len(o.doubted) > 0 {
		line += "; not reliable: " + strings.Join(o.doubted, ", ")
	}
	return line
}

// verdict returns what became of the mutant, in words.
func (o outcome) verdict() string {
	switch o.fate {
	case caught:
		return "caught by " + o.by
	case survived:
		return "SURVIVED"
	}
	return "ERROR: " + o.by
}

// trial tries mutants.
type trial struct {
	root, temp string
	tests      dependents
	// confirm has the test that failed run once more with the mutant, and once without.
	confirm bool
	goTest  func(context.Context, testRun) (testResult, error)
}

// try runs the tests of one package after the other until one of them notices the mutant.
func (t *trial) try(ctx context.Context, m mutant) outcome {
	begun := time.Now()
	o := outcome{mutant: m, fate: survived}
	if overlay, err := t.overlay(m); err != nil {
		o.fate, o.by = faulty, err.Error()
	} else {
		for _, dir := range m.order(t.tests) {
			if t.test(ctx, &o, testRun{dir: dir, overlay: overlay}); o.fate != survived {
				break
			}
		}
	}
	o.took = time.Since(begun)
	return o
}

// mostDoubted bounds how many tests of one package may fail without a reason.
const mostDoubted = 5

// test runs the tests of one package. A test that failed, but not because of the mutant, is left out of the next run.
func (t *trial) test(ctx context.Context, o *outcome, r testRun) {
	for range mostDoubted {
		result, err := t.goTest(ctx, r)
		switch {
		case err != nil:
			o.fate, o.by = faulty, err.Error()
			return
		case result.verdict == green:
			return
		case result.verdict == broken:
			o.fate, o.by = faulty, "the mutant does not compile: "+strings.TrimSpace(result.detail)
			return
		}
		top, _, _ := strings.Cut(result.test, "/")
		reliable, err := t.confirmed(ctx, r, top, result.verdict)
		if err != nil {
			o.fate, o.by = faulty, err.Error()
			return
		}
		if reliable {
			o.fate, o.by = caught, noticed(result, r.dir)
			return
		}
		o.doubted = append(o.doubted, top+" of "+r.dir)
		r.skip = append(slices.Clone(r.skip), top)
	}
	o.fate, o.by = faulty, fmt.Sprintf("the tests of %s fail for other reasons than the mutant", r.dir)
}

// confirmed reports whether a test fails under the mutant once more, and passes without it. A package that failed without
// naming a test is believed, and a test that hangs is not run once more.
func (t *trial) confirmed(ctx context.Context, r testRun, test string, found verdict) (bool, error) {
	if !t.confirm || test == "" {
		return true, nil
	}
	without, err := t.goTest(ctx, testRun{dir: r.dir, only: test})
	if err != nil || without.verdict != green || found == hung {
		return err == nil && without.verdict == green, err
	}
	with, err := t.goTest(ctx, testRun{dir: r.dir, overlay: r.overlay, only: test})
	return err == nil && with.verdict != green, err
}

// noticed names the test that failed, with its package.
func noticed(r testResult, dir string) string {
	switch {
	case r.verdict == hung && r.test != "":
		return r.test + " of " + dir + " (hangs)"
	case r.verdict == hung:
		return "the tests of " + dir + " (hang)"
	case r.test == "":
		return "the tests of " + dir
	}
	return r.test + " of " + dir
}

// overlay writes the mutated file and the list of replacements that go build -overlay reads, and returns the latter's path.
func (t *trial) overlay(m mutant) (string, error) {
	text, err := m.mutate(t.root)
	if err != nil {
		return "", err
	}
	file, list := filepath.Join(t.temp, "mutant.go"), filepath.Join(t.temp, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(t.root, filepath.FromSlash(m.File)): file}})
	if err != nil {
		return "", err
	}
	return list, os.WriteFile(list, data, 0o600)
}
