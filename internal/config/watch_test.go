package config_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

const never = time.Hour

// watched runs Watch and counts what it tells.
type watched struct {
	t      *testing.T
	dir    string
	path   string
	loader *config.Loader
	told   chan struct{}
	calls  atomic.Int32
	logs   *observer.ObservedLogs
}

// write replaces the content of a file in place.
func (w *watched) write(name, scheduler string) {
	w.t.Helper()
	w.must(os.WriteFile(filepath.Join(w.dir, name), []byte(proxyHead+"ipvs: {scheduler: "+scheduler+"}\n"), 0o600))
}

func (w *watched) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// volume puts a version in place as a kubelet does with a ConfigMap.
func (w *watched) volume(version, scheduler string) {
	w.t.Helper()
	w.must(os.Mkdir(filepath.Join(w.dir, version), 0o700))
	w.write(version+"/config.conf", scheduler)
	old, _ := os.Readlink(filepath.Join(w.dir, "..data")) // none at first
	w.must(os.Symlink(version, filepath.Join(w.dir, "..data_tmp")))
	w.must(os.Rename(filepath.Join(w.dir, "..data_tmp"), filepath.Join(w.dir, "..data")))
	if old != "" {
		w.must(os.RemoveAll(filepath.Join(w.dir, old)))
	}
}

func newWatched(t *testing.T) *watched {
	w := &watched{t: t, dir: t.TempDir(), told: make(chan struct{}, 1000)}
	w.path = filepath.Join(w.dir, "config.conf")
	return w
}

// run loads the file once and follows it until the test ends.
func (w *watched) run(quiet, poll time.Duration, pollOnly bool) {
	w.t.Helper()
	w.loader = loader(w.t, "--config", w.path)
	w.loader.SetPace(quiet, poll, pollOnly)
	if _, err := w.loader.Load("node-a"); err != nil {
		w.t.Fatal(err)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	w.logs = logs
	log := zap.New(zapcore.NewTee(core, zaptest.NewLogger(w.t).Core()))
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.loader.Watch(ctx, log, func() { w.calls.Add(1); w.told <- struct{}{} }) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("watch: %v", err)
		}
	})
}

// until waits for Watch to tell of the change after which the scheduler is the
// wanted one, "" for a file that cannot be loaded.
func (w *watched) until(scheduler string) {
	w.t.Helper()
	for {
		poll.Receive(w.t, fmt.Sprintf("the change to %q", scheduler), w.told)
		l, err := w.loader.Load("node-a")
		if scheduler == "" && err != nil || scheduler != "" && err == nil && l.Config.Scheduler.Name() == scheduler {
			return
		}
	}
}

// TestWatchSeesHowFilesAreReplaced: every way in which programs put a new version
// in place is noticed by the watch alone, one time after the other.
func TestWatchSeesHowFilesAreReplaced(t *testing.T) {
	for _, tt := range []struct {
		name          string
		setup, change func(w *watched)
	}{
		{"written in place", func(w *watched) { w.write("config.conf", "rr") }, func(w *watched) { w.write("config.conf", "wlc") }},
		{"renamed over", func(w *watched) { w.write("config.conf", "rr") }, func(w *watched) {
			w.write("new", "wlc")
			w.must(os.Rename(filepath.Join(w.dir, "new"), w.path))
		}},
		{"removed and written", func(w *watched) { w.write("config.conf", "rr") }, func(w *watched) {
			w.must(os.Remove(w.path))
			w.write("config.conf", "wlc")
		}},
		{"volume of a ConfigMap", func(w *watched) {
			w.volume("..v1", "rr")
			w.must(os.Symlink("..data/config.conf", w.path))
		}, func(w *watched) { w.volume("..v2", "wlc") }},
		{"link to a file elsewhere", func(w *watched) {
			w.must(os.Mkdir(filepath.Join(w.dir, "real"), 0o700))
			w.write("real/config.conf", "rr")
			w.must(os.Symlink("real/config.conf", w.path))
		}, func(w *watched) { w.write("real/config.conf", "wlc") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWatched(t)
			tt.setup(w)
			w.run(time.Millisecond, never, false)
			tt.change(w)
			w.until("wlc")
		})
	}
}

// TestVolumeSwappedAgain: links that changed are followed to where they lead now.
func TestVolumeSwappedAgain(t *testing.T) {
	w := newWatched(t)
	w.volume("..v1", "rr")
	w.must(os.Symlink("..data/config.conf", w.path))
	w.run(time.Millisecond, never, false)
	for _, step := range []struct{ version, scheduler string }{{"..v2", "wlc"}, {"..v3", "sh"}, {"..v4", "[broken"}, {"..v5", "lc"}} {
		w.volume(step.version, step.scheduler)
		if step.scheduler[0] == '[' {
			step.scheduler = ""
		}
		w.until(step.scheduler)
	}
}

// TestFileThatGoes: trouble is told like a change, and so is its end.
func TestFileThatGoes(t *testing.T) {
	w := newWatched(t)
	w.write("config.conf", "rr")
	w.run(time.Millisecond, never, false)
	w.must(os.Remove(w.path))
	w.until("")
	w.write("config.conf", "wlc")
	w.until("wlc")
}

// TestSameContentIsNoChange: a file that was touched, or written as it was, and
// neighbours that change, are not news.
func TestSameContentIsNoChange(t *testing.T) {
	w := newWatched(t)
	w.volume("..v1", "rr")
	w.must(os.Symlink("..data/config.conf", w.path))
	w.run(time.Millisecond, time.Millisecond, false)
	w.volume("..v2", "rr")
	w.write("neighbour", "sh")
	w.must(os.Chtimes(w.path, time.Now(), time.Now()))
	w.volume("..v3", "wlc") // a change at last: an earlier one would have been reported first
	w.until("wlc")
	if n := w.calls.Load(); n != 1 {
		t.Errorf("told of %d changes, want one", n)
	}
}

// TestNeighboursAreNotLookedAt: the agent does not read the file each time another file in its
// directory is written. A write through a second link to the file causes no event in this
// directory, so only reading the file finds it. One look may still be due for the rename.
func TestNeighboursAreNotLookedAt(t *testing.T) {
	w := newWatched(t)
	w.write("config.conf", "rr")
	w.run(time.Millisecond, never, false)
	dir, elsewhere := w.dir, t.TempDir()
	w.write("new", "sh")
	w.must(os.Link(filepath.Join(dir, "new"), filepath.Join(elsewhere, "second")))
	w.must(os.Rename(filepath.Join(dir, "new"), w.path))
	w.until("sh")
	told := w.calls.Load()
	w.dir = elsewhere
	for i := range 50 {
		w.write("second", []string{"wlc", "lc"}[i%2])
		w.must(os.WriteFile(filepath.Join(dir, "log"), make([]byte, i), 0o600))
		time.Sleep(time.Millisecond)
	}
	if n := w.calls.Load() - told; n > 1 {
		t.Errorf("the neighbour's writes told of %d changes", n)
	}
	w.write("second", "nq")
	w.must(os.Chmod(w.path, 0o640))
	w.until("nq")
}

// TestPollingSees: changes without an event are found by polling.
func TestPollingSees(t *testing.T) {
	w := newWatched(t)
	w.write("config.conf", "rr")
	w.run(never, time.Millisecond, true)
	w.write("config.conf", "wlc")
	w.until("wlc")
	if n := w.logs.FilterMessageSnippet("found by polling").Len(); n != 1 {
		t.Errorf("%d lines about it, want one", n)
	}
}

// TestForgottenFileIsToldAgain: a file that could not be used for a reason outside the file is
// offered again without a new write.
func TestForgottenFileIsToldAgain(t *testing.T) {
	w := newWatched(t)
	w.write("config.conf", "rr")
	w.run(never, time.Millisecond, true)
	w.loader.Forget()
	w.until("rr")
}

// TestChangeBeforeWatch: nothing is missed between Load and Watch.
func TestChangeBeforeWatch(t *testing.T) {
	path := fileWith(t, proxyHead)
	l := loader(t, "--config", path)
	if _, err := l.Load("node-a"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(proxyHead+"oomScoreAdj: 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := l.Watch(ctx, zaptest.NewLogger(t), func() { calls++; cancel() })
	if err != nil || calls != 1 {
		t.Errorf("error %v, told %d times, want once", err, calls)
	}
}

// TestNothingToWatch: without a file Watch waits for the end.
func TestNothingToWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := loader(t).Watch(ctx, zaptest.NewLogger(t), func() { t.Error("told of a change") }); err != nil {
		t.Error(err)
	}
}
