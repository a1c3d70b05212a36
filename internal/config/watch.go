package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// pace is when Watch looks: quiet after an event, so that many are one, and each
// poll, for what no event tells.
type pace struct {
	quiet, poll time.Duration
	pollOnly    bool // there is no watch to be had
}

// patience is how long a reader waits for a file while it is being written.
const patience = 2 * time.Second

// Forget makes Watch call changed again, when it looks at the file next: the contents
// could not be used, for a reason that is not in the file.
func (l *Loader) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read = ""
}

// Watch calls changed each time the content of the file differs from that at the last Load or call,
// or when the file cannot be read any more. It returns when ctx ends. Neither a touched file nor a
// volume swapped for an equal one counts as changed. Without a file, changed is never called.
func (l *Loader) Watch(ctx context.Context, log *zap.Logger, changed func()) error {
	if l.path == "" {
		<-ctx.Done()
		return nil
	}
	w := dirWatch{log: log, refused: map[string]bool{}}
	if err := w.open(l.pace.pollOnly); err != nil {
		log.Warn("cannot watch files, changes of the configuration are found by polling", zap.String("file", l.path), zap.Error(err))
	}
	defer w.close()
	poll := time.NewTicker(l.pace.poll)
	defer poll.Stop()
	var settled <-chan time.Time
	var longest time.Time
	look := true
	for {
		if look {
			w.arm(l.path)
			if settled == nil && l.news() {
				changed()
			}
		}
		look = true
		select {
		case <-ctx.Done():
			return nil
		case event := <-w.events():
			if look = w.concerns(event.Name); !look {
				continue
			}
			// A file that is written in place is read after its last write.
			if settled == nil {
				longest = time.Now().Add(patience)
			}
			settled = time.After(min(l.pace.quiet, time.Until(longest)))
		case err := <-w.losses():
			log.Debug("events of the configuration file may be lost, reading it again", zap.Error(err))
		case <-poll.C:
		case <-settled:
			settled = nil
		}
	}
}

// news reports whether the file differs from its state at the last read.
func (l *Loader) news() bool {
	text, err := os.ReadFile(l.path)
	return l.remember(fingerprint(text, err))
}

// remember keeps the state of the file and reports whether it is new.
func (l *Loader) remember(now string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := now != l.read
	l.read = now
	return news
}

// fingerprint is equal for equal content, and for equal trouble.
func fingerprint(text []byte, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// dirWatch watches the directories on the path to a file. Files are replaced by renaming others
// over them, which would end a watch on the file itself. The file of a ConfigMap volume is replaced
// by renaming a link on the path.
type dirWatch struct {
	log *zap.Logger
	// notify is nil where the kernel has no more watches to give.
	notify *fsnotify.Watcher
	// refused are the directories whose watch was refused, said once.
	refused map[string]bool
	// way is the file under each name that the way to it goes by.
	way []string
}

func (w *dirWatch) open(refuse bool) (err error) {
	if refuse {
		return fsnotify.ErrClosed
	}
	w.notify, err = fsnotify.NewWatcher()
	return err
}

func (w *dirWatch) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

func (w *dirWatch) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

// losses tells that events may have been lost.
func (w *dirWatch) losses() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

// arm sets the watches that are missing and drops those of other directories. A
// directory that took the place of another one gets a new watch by being asked for
// again, and the file is looked at after that.
func (w *dirWatch) arm(path string) {
	if w.notify == nil {
		return
	}
	var dirs []string
	dirs, w.way = waypoints(path)
	for _, old := range w.notify.WatchList() {
		if !slices.Contains(dirs, old) {
			_ = w.notify.Remove(old) // it may be gone already
		}
	}
	for _, dir := range dirs {
		err := w.notify.Add(dir)
		if err != nil && !w.refused[dir] && !errors.Is(err, os.ErrNotExist) {
			w.log.Warn("cannot watch files, changes of the configuration are found by polling", zap.String("file", dir), zap.Error(err))
		}
		w.refused[dir] = err != nil
	}
}

// concerns reports whether a name is on the path. Others in the same directories are not looked at:
// a log that is written there, at each line.
func (w *dirWatch) concerns(name string) bool {
	return slices.ContainsFunc(w.way, func(path string) bool {
		return path == name || strings.HasPrefix(path, name+string(filepath.Separator))
	})
}

// mostLinks bounds a way that leads in a circle.
const mostLinks = 16

// waypoints are the directories that contain a name on the path to a file. These are the directory
// of the file and, for each link on the path, the directories of the link's target. way has the
// names of the file in them.
func waypoints(path string) (dirs, way []string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, nil
	}
	way = append(way, path)
	for range mostLinks {
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
		way = append(way, path)
	}
	if end, err := filepath.EvalSymlinks(path); err == nil {
		way = append(way, end)
	}
	for _, name := range way {
		dirs = append(dirs, filepath.Dir(name))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), way
}
