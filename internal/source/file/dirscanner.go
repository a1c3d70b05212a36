package file

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxSize bounds one file: above it, it is a mistake rather than a manifest.
const maxSize = 256 << 20

// young is the age below which a modification time proves nothing: a second
// write within the granularity of the clock would leave it as it was.
const young = 2 * time.Second

// dirScanner reads files and directories; tests replace its functions by faults.
type dirScanner struct {
	readDir  func(string) ([]os.DirEntry, error)
	stat     func(string) (os.FileInfo, error)
	lstat    func(string) (os.FileInfo, error)
	readFile func(string) ([]byte, error)
}

func realDisk() dirScanner {
	return dirScanner{readDir: os.ReadDir, stat: os.Stat, lstat: os.Lstat, readFile: os.ReadFile}
}

// manifests lists the names of the files that count, sorted, and the directory
// they are in: all manifests of a directory, or the one file that path is.
func (d dirScanner) manifests(path string) (dir string, names []string, err error) {
	info, err := d.stat(path)
	if err != nil {
		return "", nil, fmt.Errorf("look at manifests: %w", err)
	}
	if !info.IsDir() {
		return filepath.Dir(path), []string{filepath.Base(path)}, nil
	}
	entries, err := d.readDir(path)
	if err != nil {
		return "", nil, fmt.Errorf("list manifests: %w", err)
	}
	for _, e := range entries {
		if isManifest(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return path, names, nil
}

// isManifest goes by the name. Hidden files are what editors, and ConfigMap
// volumes (..data), put beside the real ones.
func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
		return false
	}
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml" || ext == ".json"
}

// stamp tells one state of a file from another without reading it.
type stamp struct {
	info os.FileInfo
	// proof: the file was old enough when it was read for the time to be trusted.
	proof bool
	sum   [sha256.Size]byte
}

// same goes by inode, size and time of what a symlink finally points to.
func (s stamp) same(info os.FileInfo) bool {
	return s.info != nil && os.SameFile(s.info, info) && s.info.Size() == info.Size() && s.info.ModTime().Equal(info.ModTime())
}

// reading is one look at a file.
type reading struct {
	text
	stamp stamp
	// unchanged: as it was at the look before; text is empty.
	unchanged bool
	err       error
}

// errMoved means that a file went or changed while it was looked at, so that what
// was listed is no longer what is there.
var errMoved = errors.New("changes while it is read")

// look reads a file unless it is as it was before.
func (d dirScanner) look(dir, name string, before stamp) reading {
	r := reading{text: text{name: name}}
	path := filepath.Join(dir, name)
	info, err := d.stat(path)
	switch {
	case err != nil:
		r.err = d.explain(path, err)
		return r
	case !info.Mode().IsRegular():
		r.err = fmt.Errorf("not a regular file (%s)", kindOfFile(info.Mode()))
		return r
	case info.Size() > maxSize:
		r.err = fmt.Errorf("%d bytes, at most %d", info.Size(), maxSize)
		return r
	case before.proof && before.same(info):
		r.stamp, r.unchanged = before, true
		return r
	}
	return d.read(r, path, info, before)
}

func (d dirScanner) read(r reading, path string, info os.FileInfo, before stamp) reading {
	now := time.Now()
	data, err := d.readFile(path)
	if err != nil {
		r.err = d.explain(path, err)
		return r
	}
	r.stamp = stamp{info: info, proof: now.Sub(info.ModTime()) > young, sum: sha256.Sum256(data)}
	if after, err := d.stat(path); err != nil || !r.stamp.same(after) {
		r.err = errMoved
		return r
	}
	if before.info != nil && before.sum == r.stamp.sum {
		r.unchanged = true
		return r
	}
	r.data = data
	return r
}

// explain tells a file that went since it was listed from a symlink to nowhere,
// which stays as it is.
func (d dirScanner) explain(path string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if info, lerr := d.lstat(path); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("dangling symlink: %w", err)
	}
	return errMoved
}

func kindOfFile(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}
