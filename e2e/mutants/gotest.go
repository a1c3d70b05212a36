package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A testRun is one call of go test.
type testRun struct {
	// dir is the package, by its directory in the repository.
	dir string
	// overlay is a file for go build -overlay; empty is none.
	overlay string
	// only is the one test to run; empty is all but those in skip.
	only string
	skip []string
}

// verdict is the outcome of a call of go test.
type verdict uint8

const (
	green  verdict = iota // every test passed
	red                   // a test failed
	hung                  // the tests did not end in time
	broken                // the package or its tests do not compile
)

// A testResult is what became of a call of go test.
type testResult struct {
	verdict verdict
	// test is the test that failed first, or that hung; empty where the package failed without one.
	test string
	// detail is what the compiler said of a package that it does not accept.
	detail string
}

// goCommand calls go test.
type goCommand struct {
	dir, module, temp string
	timeout           time.Duration
	parallel          int
}

// patience is how much longer than its own time-out a call of go test may take.
const patience = 2 * time.Minute

// test runs the tests of one package. An error means that go test itself could not run.
func (g goCommand) test(ctx context.Context, r testRun) (testResult, error) {
	limited, cancel := context.WithTimeout(ctx, g.timeout+patience)
	defer cancel()
	cmd := exec.CommandContext(limited, "go", g.arguments(r)...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath"), "GOTMPDIR="+g.temp)
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ownGroup(cmd)
	err := cmd.Run()
	if ctx.Err() != nil {
		return testResult{}, ctx.Err()
	}
	result := readEvents(stdout.Bytes())
	var exit *exec.ExitError
	switch {
	case limited.Err() != nil:
		return testResult{verdict: hung, test: result.test}, nil
	case err == nil:
		return testResult{}, nil
	case errors.As(err, &exit) && result.verdict != green:
		return result, nil
	default:
		return testResult{}, fmt.Errorf("go %s: %w\n%s%s", strings.Join(cmd.Args[1:], " "), err, &stderr, &stdout)
	}
}

// arguments are those of go.
func (g goCommand) arguments(r testRun) []string {
	args := []string{"test", "-json", "-short", "-count=1", "-failfast", "-vet=off", "-timeout=" + g.timeout.String()}
	if g.parallel > 0 {
		args = append(args, "-p="+strconv.Itoa(g.parallel))
	}
	if r.overlay != "" {
		args = append(args, "-overlay="+r.overlay)
	}
	if r.only != "" {
		args = append(args, "-run=^"+regexp.QuoteMeta(r.only)+"$")
	}
	if len(r.skip) > 0 {
		args = append(args, "-skip=^("+strings.Join(r.skip, "|")+")$")
	}
	return append(args, "./"+r.dir)
}

// An event is a line of go test -json.
type event struct {
	Action, Test, Output, FailedBuild string
}

// Marks of a test binary whose time is over: the panic, and each test that ran at that moment.
var (
	timedOut = regexp.MustCompile(`^panic: test timed out after`)
	wasOn    = regexp.MustCompile(`^\t+(Test\S+) \(\d`)
)

// readEvents reads what go test -json prints.
func readEvents(stream []byte) testResult {
	var out testResult
	var compiler, running strings.Builder
	lines := bufio.NewScanner(bytes.NewReader(stream))
	lines.Buffer(nil, len(stream)+1)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		switch e.Action {
		case "build-output":
			compiler.WriteString(e.Output)
		case "output":
			if timedOut.MatchString(e.Output) {
				out.verdict = hung
			}
			if on := wasOn.FindStringSubmatch(e.Output); on != nil && running.Len() == 0 {
				running.WriteString(on[1])
			}
		case "fail":
			out.fail(e, compiler.String())
		}
	}
	if out.verdict == hung {
		out.test = running.String()
	}
	return out
}

// fail takes in that a test or the package failed.
func (r *testResult) fail(e event, compiler string) {
	switch {
	case e.FailedBuild != "":
		r.verdict, r.detail = broken, compiler
	case r.verdict == green:
		r.verdict, r.test = red, e.Test
	}
}

// dependents lists, for each package of the module, the packages whose tests contain it, all by directory.
type dependents map[string][]string

// listTests asks go list for the packages that each test binary of the module contains.
func listTests(ctx context.Context, root, module string) (dependents, error) {
	out, err := goOutput(ctx, root, "list", "-test", "-f", `{{.ImportPath}}{{"\t"}}{{join .Deps "\t"}}`, "./...")
	if err != nil {
		return nil, err
	}
	return readDependents(out, module), nil
}

// readDependents reads what go list prints: a test binary and the packages in it, on one line.
func readDependents(text, module string) dependents {
	out := dependents{}
	for line := range strings.Lines(text) {
		words := strings.Split(strings.TrimSpace(line), "\t")
		dir, isTest := strings.CutSuffix(words[0], ".test")
		dir, ours := strings.CutPrefix(dir, module+"/")
		if !isTest || !ours {
			continue
		}
		for _, dep := range words[1:] {
			dep, _, _ = strings.Cut(dep, " ") // "package [package.test]" is that package with its tests
			if dep, ours := strings.CutPrefix(dep, module+"/"); ours && !slices.Contains(out[dep], dir) {
				out[dep] = append(out[dep], dir)
			}
		}
	}
	for _, list := range out {
		slices.Sort(list)
	}
	return out
}

// findModule returns the directory and the name of the module that the program was called in.
func findModule(ctx context.Context) (root, module string, err error) {
	out, err := goOutput(ctx, "", "list", "-m", "-f", "{{.Dir}}\t{{.Path}}")
	if err != nil {
		return "", "", err
	}
	root, module, _ = strings.Cut(strings.TrimSpace(out), "\t")
	return filepath.Clean(root), module, nil
}

// goOutput returns what go prints.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out), nil
}
