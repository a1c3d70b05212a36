package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// CacheDir is where kernels and root file systems are kept: $KUBE_IPVS_CACHE, else kube-ipvs under the user's cache directory
// ($XDG_CACHE_HOME or ~/.cache). A directory inside a Go module is refused: hundreds of megabytes must never be committed.
func CacheDir() (string, error) {
	dir := os.Getenv("KUBE_IPVS_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("cache directory: set KUBE_IPVS_CACHE: %w", err)
		}
		dir = filepath.Join(base, "kube-ipvs")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cache directory: %w", err)
	}
	if module := enclosingModule(dir); module != "" {
		return "", fmt.Errorf("cache directory %s lies inside the source tree %s: choose another KUBE_IPVS_CACHE", dir, module)
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// enclosingModule returns the directory at or above dir that holds a go.mod, or "".
func enclosingModule(dir string) string {
	for {
		if exists(filepath.Join(dir, "go.mod")) {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// unfinished starts the names of what is not complete yet.
const unfinished = ".new-"

// sweep removes what builders that were killed left unfinished, and the directories of guests whose runner was killed. Only the holder
// of the cache's lock may call it. A guest that runs holds a lock of its own on its directory.
func sweep(cache string) error {
	left, err := filepath.Glob(filepath.Join(cache, unfinished+"*"))
	if err != nil {
		return err
	}
	for _, dir := range left {
		free, release := tryLock(dir)
		if !free {
			continue
		}
		err := os.RemoveAll(dir)
		release()
		if err != nil {
			return fmt.Errorf("clean the cache: %w", err)
		}
	}
	return nil
}

// ownDir makes a directory in the cache that sweep leaves alone until release is called or this process ends.
func ownDir(cache, pattern string) (dir string, release func(), err error) {
	for {
		dir, err := os.MkdirTemp(cache, unfinished+pattern)
		if err != nil {
			return "", nil, err
		}
		// A sweep of another process may come between the two calls, and takes the directory with it.
		if free, release := tryLock(dir); free && exists(dir) {
			return dir, release, nil
		} else if free {
			release()
		}
	}
}

// tryLock takes the lock of a file or directory if no other process holds it.
func tryLock(path string) (free bool, release func()) {
	file, err := os.Open(path)
	if err != nil {
		return errors.Is(err, os.ErrNotExist), func() {}
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return false, nil
	}
	return true, func() { file.Close() }
}

// publish makes target by calling build on a temporary sibling and renaming it into place, so that a reader sees all or
// nothing, however the builder ends.
func publish(target string, build func(tmp string) error) error {
	dir, err := os.MkdirTemp(filepath.Dir(target), unfinished)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tmp := filepath.Join(dir, filepath.Base(target))
	if err := build(tmp); err != nil {
		return err
	}
	err = os.Rename(tmp, target)
	if err != nil && exists(target) && errors.Is(err, os.ErrExist) {
		return nil // another process published the same entry first
	}
	return err
}

// kept bounds the cache: of each kind of file, those of other kernels and tool versions beyond this number go. The kernels of
// `make stress WHAT=kernels` fit in it.
const kept = 8

// prune removes the files of a kind that nothing used lately. One in use is only unlinked: its reader keeps it.
func prune(cache, pattern string) error {
	files, err := filepath.Glob(filepath.Join(cache, pattern))
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			used[file] = info.ModTime()
		}
	}
	slices.SortFunc(files, func(a, b string) int { return used[b].Compare(used[a]) })
	for _, file := range files[min(len(files), kept):] {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
