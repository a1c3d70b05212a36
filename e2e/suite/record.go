package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// outcome is how a test ended, in the words of go test.
type outcome string

const (
	pass outcome = "PASS"
	fail outcome = "FAIL"
	skip outcome = "SKIP"
)

// A result is one test, or subtest, that has ended.
type result struct {
	stage   string
	name    string // with the package or binary before it, where a stage has several
	outcome outcome
	took    time.Duration
	reason  string   // reason of a skip
	output  []string // output of a failure, its last lines
}

// counts are the results of a stage by outcome.
type counts struct{ passed, failed, skipped int }

func (c counts) all() int { return c.passed + c.failed + c.skipped }

// A recorder keeps what one stage has done so far. Its methods may be called by several goroutines.
type recorder struct {
	stage string
	nice  int // niceness of the processes that it starts
	spare bool
	begun time.Time
	log   io.WriteCloser

	mu      sync.Mutex
	results []result
	totals  counts
	planned int               // units that the stage will run; 0 means that it does not know
	done    int               // units that have ended
	unit    string            // the plural of a unit: "tests", "packages"
	now     map[string]string // lane -> what runs there
	note    string            // the last thing the stage said
	verdict verdict
	err     error
	took    time.Duration
	shown   string                   // the text that the stage wants printed at its end
	units   map[string]time.Duration // how long packages and units of a queue took
	lost    []string                 // units of a queue that failed or were never started
	repeats []repeat                 // parts that failed and can be run once more
	certain bool                     // a part failed that no repeat can make good
	alone   []string                 // parts that failed beside others and passed alone
}

// newRecorder opens the stage's log below dir.
func newRecorder(dir, stage string) (*recorder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, stage+".log"))
	if err != nil {
		return nil, err
	}
	return &recorder{stage: stage, begun: time.Now(), log: log, unit: "tests", now: map[string]string{}, units: map[string]time.Duration{}}, nil
}

// Write appends to the stage's log.
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

// plan sets how many units the stage will run.
func (r *recorder) plan(n int, unit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.planned, r.unit = r.planned+n, unit
}

// finishUnit counts one of the planned units as done.
func (r *recorder) finishUnit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
}

// say keeps a line for the progress report.
func (r *recorder) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note = fmt.Sprintf(format, args...)
}

// running names what a lane runs; an empty name means nothing.
func (r *recorder) running(lane, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == "" {
		delete(r.now, lane)
		return
	}
	r.now[lane] = name
}

// add records a test that has ended.
func (r *recorder) add(res result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res.stage = r.stage
	r.results = append(r.results, res)
	switch res.outcome {
	case pass:
		r.totals.passed++
	case fail:
		r.totals.failed++
	case skip:
		r.totals.skipped++
	}
}

// show keeps a text that is printed when the stage has ended.
func (r *recorder) show(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shown = text
}

// timed records how long a package or a unit of a queue took.
func (r *recorder) timed(unit string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.units[unit] = took
}

func (r *recorder) counts() counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.totals
}

// finish records the end of the stage and closes its log.
func (r *recorder) finish(v verdict, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdict, r.err, r.took = v, err, time.Since(r.begun)
	if err != nil {
		fmt.Fprintln(r.log, "suite:", err)
	}
	r.log.Close()
}

// progress is the stage's line while it runs.
func (r *recorder) progress() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := fmt.Sprintf("%-11s %7s ", r.stage, seconds(time.Since(r.begun)))
	if r.planned > 0 {
		line += fmt.Sprintf(" %d of %d %s", r.done, r.planned, r.unit)
	} else if n := r.totals.all(); n > 0 {
		line += fmt.Sprintf(" %d tests", n)
	}
	if r.totals.failed > 0 {
		line += fmt.Sprintf(", %d FAILED", r.totals.failed)
	}
	if len(r.now) > 0 {
		names := make([]string, 0, len(r.now))
		for _, name := range r.now {
			names = append(names, name)
		}
		slices.Sort(names)
		line += ": " + strings.Join(slices.Compact(names), ", ")
	} else if r.note != "" {
		line += ": " + r.note
	}
	return shorten(line, 150)
}

// shorten cuts a text that is longer than a line should be.
func shorten(text string, width int) string {
	if len(text) > width {
		return text[:width-3] + "..."
	}
	return text
}

// command runs a program of this machine. Its output goes to the log, and through parse where that is not nil.
func (r *recorder) command(ctx context.Context, parse io.Writer, env []string, args ...string) error {
	fmt.Fprintf(r, "$ %s\n", strings.Join(args, " "))
	switch {
	case r.spare:
		args = append([]string{"chrt", "--idle", "0"}, args...)
	case r.nice > 0:
		args = append([]string{"nice", "-n", strconv.Itoa(r.nice)}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out := io.Writer(&lineWriter{each: func(line string) {
		fmt.Fprintln(r, line)
		if text := strings.TrimSpace(line); text != "" {
			r.say("%s", text)
		}
	}})
	if parse != nil {
		out = parse
	}
	cmd.Stdout, cmd.Stderr = out, out
	// Everything that the program started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", shorten(strings.Join(args, " "), 100), err)
	}
	return nil
}

// lineWriter hands complete lines to each.
type lineWriter struct {
	mu   sync.Mutex
	rest string
	each func(line string)
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest += string(p)
	for {
		line, rest, ok := strings.Cut(w.rest, "\n")
		if !ok {
			return len(p), nil
		}
		w.rest = rest
		w.each(strings.TrimSuffix(line, "\r"))
	}
}
