package vm

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// archive writes the "newc" cpio format that the kernel unpacks as its first root file system. Archives may follow each other
// in one image; a later file replaces an earlier one of the same name, which is what the overlay of a run relies on.
type archive struct {
	w     io.Writer
	inode uint32
	size  int64
	err   error // the first write error; later calls do nothing
}

const (
	modeDir     = 0o040000
	modeRegular = 0o100000
	modeSymlink = 0o120000
	modeChar    = 0o020000
)

func newArchive(w io.Writer) *archive { return &archive{w: w} }

func (a *archive) dir(name string)              { a.entry(name, modeDir|0o755, nil, 0, 0) }
func (a *archive) link(name, target string)     { a.entry(name, modeSymlink|0o777, []byte(target), 0, 0) }
func (a *archive) char(name string, mj, mn int) { a.entry(name, modeChar|0o600, nil, mj, mn) }
func (a *archive) file(name string, perm fs.FileMode, data []byte) {
	a.entry(name, modeRegular|uint32(perm.Perm()), data, 0, 0)
}

// parents writes the directories above name, because the kernel does not make them by itself.
func (a *archive) parents(name string) {
	parts := strings.Split(strings.Trim(name, "/"), "/")
	for i := 1; i < len(parts); i++ {
		a.dir(strings.Join(parts[:i], "/"))
	}
}

func (a *archive) entry(name string, mode uint32, data []byte, major, minor int) {
	name = strings.TrimPrefix(name, "/")
	a.inode++
	// magic, inode, mode, uid, gid, links, mtime, size, device of the file (two), device it is (two), name size, checksum
	a.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0))
	a.write(append([]byte(name), 0))
	a.pad()
	a.write(data)
	a.pad()
}

// close writes the trailer that ends one archive.
func (a *archive) close() error {
	a.inode = 0
	a.entry("TRAILER!!!", 0, nil, 0, 0)
	return a.err
}

func (a *archive) pad() {
	if rest := a.size % 4; rest != 0 {
		a.write(make([]byte, 4-rest))
	}
}

func (a *archive) write(data []byte) {
	if a.err != nil {
		return
	}
	n, err := a.w.Write(data)
	a.size += int64(n)
	a.err = err
}

// tree adds everything below root: directories, regular files and symbolic links.
func (a *archive) tree(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return a.treeEntry(path, name, entry)
	})
}

func (a *archive) treeEntry(path, name string, entry fs.DirEntry) error {
	switch {
	case entry.IsDir():
		a.dir(name)
	case entry.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		a.link(name, target)
	default:
		return a.hostFile(path, name)
	}
	return a.err
}

// hostFile adds a file of the host under another name, with its permission bits.
func (a *archive) hostFile(path, name string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	a.file(name, info.Mode(), data)
	return a.err
}
