package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// shell is a process that runs a script.
func shell(t *testing.T, script string) *process {
	t.Helper()
	p := &process{path: "/bin/sh", args: []string{"-c", script}, log: filepath.Join(t.TempDir(), "sh.log")}
	t.Cleanup(func() { _ = p.end(syscall.SIGKILL) })
	return p
}

// logHolds succeeds when the program has written a text.
func logHolds(p *process, text string) func(context.Context) error {
	return func(context.Context) error {
		log, err := os.ReadFile(p.log)
		if err == nil && !strings.Contains(string(log), text) {
			err = errors.New("the log lacks " + text)
		}
		return err
	}
}

func TestProcessStartsAgainAndAddsToItsLog(t *testing.T) {
	p := shell(t, "echo run; trap 'echo asked to end; exit' TERM; echo trapped; while :; do sleep 0.05; done")
	for range 2 {
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
		if err := awaitReady(t.Context(), p, logHolds(p, "trapped")); err != nil {
			t.Fatal(err)
		}
		if err := p.start(); err == nil {
			t.Error("a second start beside the first one went well")
		}
		if err := p.signal(syscall.SIGSTOP); err != nil { // one that hangs has to end, too
			t.Error(err)
		}
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := os.Rename(p.log, p.log+".1"); err != nil {
			t.Fatal(err)
		}
		if err := logHolds(&process{log: p.log + ".1"}, "asked to end")(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("ending what does not run: %v", err)
	}
	if err := p.signal(syscall.SIGSTOP); err == nil {
		t.Error("pausing what does not run went well")
	}
}

func TestAwaitReadyTellsTheLastWords(t *testing.T) {
	refused := errors.New("connection refused")
	refuse := func(context.Context) error { return refused }
	t.Run("it ended", func(t *testing.T) {
		p := shell(t, "echo cannot bind; exit 1")
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
		err := awaitReady(t.Context(), p, refuse)
		if err == nil || !strings.Contains(err.Error(), "start sh: it ended") || !strings.Contains(err.Error(), "cannot bind") {
			t.Errorf("error = %v, want the end of the log", err)
		}
	})
	t.Run("no caller waits any longer", func(t *testing.T) {
		p := shell(t, "exec sleep 1000")
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
		stop := errors.New("the test is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		err := awaitReady(ctx, p, func(context.Context) error {
			cancel(stop)
			return refused
		})
		if !errors.Is(err, stop) || !errors.Is(err, refused) {
			t.Errorf("error = %v, want %v and %v", err, stop, refused)
		}
	})
}

func TestStartOfWhatIsNotThere(t *testing.T) {
	p := &process{path: "/no/such/program", log: filepath.Join(t.TempDir(), "log")}
	if err := p.start(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v, want %v", err, os.ErrNotExist)
	}
	if err := p.end(syscall.SIGKILL); err != nil {
		t.Errorf("end after a failed start: %v", err)
	}
}

func TestLastWordsAreBounded(t *testing.T) {
	p := &process{path: "/bin/sh", log: filepath.Join(t.TempDir(), "log")}
	if got := p.lastWords(); got != "" {
		t.Errorf("without a log: %q", got)
	}
	if err := os.WriteFile(p.log, []byte(strings.Repeat("old\n", 10000)+"last\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := p.lastWords()
	if !strings.HasSuffix(got, "\nlast") || strings.Count(got, "\n") != 31 {
		t.Errorf("%d lines, want 30 and a heading, ending with the last:\n%s", strings.Count(got, "\n"), got)
	}
}
