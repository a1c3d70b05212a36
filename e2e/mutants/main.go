// The program mutants measures what the tests notice. It changes one condition of the program at a
// time, in a copy that only the compiler sees (go build -overlay). Then it runs the tests of make
// test until one of them fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

const usage = `Usage: go run ./e2e/mutants [flags]

Each mutant of the list changes one condition of the program. The tests of the mutated package
run first, then those of the packages above it, of the packages that the list names, of
./e2e/scenarios, and of all others whose tests contain the mutated package. The first test that
fails ends the trial: the mutant is caught. The checkout is never changed.

The exit status is 0 when at least 95 % of the mutants are caught and the list has a reason for
each of the others, 1 when not, and 2 when the tool cannot run.

Examples:

  go run ./e2e/mutants                        all mutants
  go run ./e2e/mutants -list                  the names of all mutants and what each of them breaks
  go run ./e2e/mutants -build                 does each mutant compile? a minute or two
  go run ./e2e/mutants -run '^agent/'         the mutants of the package agent
  go run ./e2e/mutants -keep-going=false      all mutants, up to the first that survives
  nice go run ./e2e/mutants -p 1              one compiler at a time, at a low priority

Flags:

`

// settings are what the command line asks for.
type settings struct {
	list      bool
	build     bool
	run       *regexp.Regexp
	keepGoing bool
	confirm   bool
	timeout   time.Duration
	parallel  int
}

// parseSettings reads the command line.
func parseSettings(args []string, out io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
	}
	flags.BoolVar(&s.list, "list", false, "print the mutants and run nothing")
	flags.BoolVar(&s.build, "build", false, "compile the package of each mutant and run no test")
	run := flags.String("run", "", "try only the mutants whose name matches this `REGEXP`")
	flags.BoolVar(&s.keepGoing, "keep-going", true, "go on after a mutant that survives")
	flags.BoolVar(&s.confirm, "confirm", true, "run the test that failed once more, with the mutant and without it")
	flags.DurationVar(&s.timeout, "timeout", 10*time.Minute, "the time for the tests of one package; a mutant under which they take longer is caught")
	flags.IntVar(&s.parallel, "p", 0, "the number of programs that go test runs in parallel; 0 leaves it to go test")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: use -run REGEXP to choose mutants", flags.Arg(0))
	}
	var err error
	if s.run, err = regexp.Compile(*run); err != nil {
		return s, fmt.Errorf("flag -run: %w", err)
	}
	return s, nil
}

// chosen returns the mutants whose name matches.
func chosen(all []mutant, run *regexp.Regexp) []mutant {
	var out []mutant
	for _, m := range all {
		if run.MatchString(m.Name) {
			out = append(out, m)
		}
	}
	return out
}

// printList prints the mutants with the file and the sentence of each.
func printList(out io.Writer, mutants []mutant) {
	for _, m := range mutants {
		fmt.Fprintf(out, "%s (%s)\n    %s\n", m.Name, m.File, m.Breaks)
		if why := m.reason(); why != "" {
			fmt.Fprintf(out, "    %s\n", why)
		}
	}
	fmt.Fprintf(out, "%d mutants\n", len(mutants))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(start(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// start runs the program and returns its exit status.
func start(ctx context.Context, args []string, out, errOut io.Writer) int {
	s, err := parseSettings(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(errOut, "mutants: %v\n", err)
		return 2
	}
	mutants := chosen(allMutants(), s.run)
	if len(mutants) == 0 {
		fmt.Fprintf(errOut, "mutants: no mutant matches %q: see -list\n", s.run)
		return 2
	}
	if s.list {
		printList(out, mutants)
		return 0
	}
	passed, err := measure(ctx, s, mutants, out)
	switch {
	case err != nil:
		fmt.Fprintf(errOut, "mutants: %v\n", err)
		return 2
	case !passed:
		return 1
	}
	return 0
}

// measure tries the mutants and reports whether enough of them are caught.
func measure(ctx context.Context, s settings, mutants []mutant, out io.Writer) (passed bool, err error) {
	root, module, err := findModule(ctx)
	if err != nil {
		return false, err
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(temp)
	if s.build {
		return compile(ctx, &trial{root: root, temp: temp}, mutants, out), nil
	}
	tests, err := listTests(ctx, root, module)
	if err != nil {
		return false, err
	}
	t := &trial{
		root: root, temp: temp, tests: tests, confirm: s.confirm,
		goTest: goCommand{dir: root, module: module, timeout: s.timeout, parallel: s.parallel, temp: temp}.test,
	}
	var all []outcome
	for i, m := range mutants {
		o := t.try(ctx, m)
		if ctx.Err() != nil {
			fmt.Fprintf(out, "interrupted during %s\n", m.Name)
			break
		}
		all = append(all, o)
		fmt.Fprintf(out, "[%*d/%d] %s\n", len(fmt.Sprint(len(mutants))), i+1, len(mutants), o)
		if o.survived() && !s.keepGoing {
			break
		}
	}
	return report(out, all) && ctx.Err() == nil, nil
}

// compile reports whether the mutated package of each mutant compiles.
func compile(ctx context.Context, t *trial, mutants []mutant, out io.Writer) (passed bool) {
	passed = true
	for _, m := range mutants {
		overlay, err := t.overlay(m)
		if err == nil {
			_, err = goOutput(ctx, t.root, "build", "-trimpath", "-overlay="+overlay, "./"+m.dir())
		}
		if err != nil {
			passed = false
			fmt.Fprintf(out, "%s: %v\n", m.Name, err)
		}
	}
	fmt.Fprintf(out, "%d mutants compiled\n", len(mutants))
	return passed
}
