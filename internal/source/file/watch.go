package file

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// watcher tells that something may have changed on disk; the store finds out
// what did. It watches directories only: files are replaced by renaming
// others over them, which a watch on the file would not survive.
type watcher struct {
	log  *zap.Logger
	path string
	// notify is nil where the kernel has no more watches to give: polling remains.
	notify *fsnotify.Watcher
	// armed has the state of each watched directory at the time when its watch was set.
	armed map[string]os.FileInfo
	// refused are the directories whose watch was refused, said once.
	refused map[string]bool
	out     chan struct{}
}

func newWatcher(log *zap.Logger, path string) *watcher {
	w := &watcher{log: log, path: filepath.Clean(path), armed: map[string]os.FileInfo{},
		refused: map[string]bool{}, out: make(chan struct{}, 1)}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("cannot watch files, changes are found by polling", zap.Error(err))
		return w
	}
	w.notify = notify
	go w.pump()
	return w
}

// close ends the watch; changes sends nothing after it.
func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

// changes is ready to receive after something happened; one slot.
func (w *watcher) changes() <-chan struct{} { return w.out }

// arm sets the missing watches: on the path, if it is a directory, and on its parent directory, in
// which the path may be renamed away and come back. A directory put in another's place needs a new
// watch.
func (w *watcher) arm() {
	if w.notify == nil {
		return
	}
	for _, dir := range []string{w.path, filepath.Dir(w.path)} {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if old := w.armed[dir]; old != nil && os.SameFile(old, info) && slices.Contains(w.notify.WatchList(), dir) {
			continue
		}
		w.watch(dir, info)
	}
}

func (w *watcher) watch(dir string, info os.FileInfo) {
	// The old watch, if any, is on a directory that has lost its name.
	if err := w.notify.Remove(dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
		w.log.Debug("cannot remove the previous file watch", zap.Error(err))
	}
	delete(w.armed, dir)
	err := w.notify.Add(dir)
	if err == nil {
		w.armed[dir] = info
	} else if !w.refused[dir] {
		w.log.Warn("cannot watch files, changes are found by polling", zap.String("file", dir), zap.Error(err))
	}
	w.refused[dir] = err != nil
}

// pump turns events into pokes until the watch is closed. Errors are events too:
// an overflow means that some were lost.
func (w *watcher) pump() {
	for {
		select {
		case ev, ok := <-w.notify.Events:
			if !ok {
				return
			}
			if w.concerns(ev.Name) {
				w.wake()
			}
		case _, ok := <-w.notify.Errors:
			if !ok {
				return
			}
			w.wake()
		}
	}
}

// concerns reports whether an event may affect the path: it happened in the path, to it, or to a
// hidden neighbour such as the ..data link of a volume.
func (w *watcher) concerns(name string) bool {
	return filepath.Dir(name) == w.path || filepath.Clean(name) == w.path ||
		strings.HasPrefix(filepath.Base(name), "..")
}

func (w *watcher) wake() {
	select {
	case w.out <- struct{}{}:
	default:
	}
}
