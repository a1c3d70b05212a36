package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tree packs a directory, all of root and of one time.
func tree(root string, date time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		return pack(w, root, path, d, date)
	})
	if err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

func pack(w *tar.Writer, root, path string, d fs.DirEntry, date time.Time) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: filepath.ToSlash(name), Mode: int64(info.Mode().Perm()), ModTime: date, Format: tar.FormatPAX}
	var text []byte
	switch info.Mode().Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		if h.Name == "tmp/" {
			h.Mode = 0o1777
		}
	case fs.ModeSymlink:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
	case 0:
		h.Typeflag = tar.TypeReg
		if text, err = os.ReadFile(filepath.Clean(path)); err != nil {
			return err
		}
		h.Size = int64(len(text))
	default:
		return fmt.Errorf("%s is neither a file, a directory nor a link", name)
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// needed are the programs that the agent launches, and those for people.
var needed = []string{
	"usr/sbin/iptables-nft-restore", "usr/sbin/ip6tables-nft-save", "usr/sbin/iptables-legacy-restore", "usr/sbin/ip6tables-legacy-save",
	"sbin/modprobe", "usr/sbin/ipset", "sbin/ipvsadm", "bin/sh", "bin/sleep",
}

// complete fails unless the programs are in a directory, and with each program and library all
// libraries that it needs.
func complete(root string) error {
	for _, name := range needed {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			return fmt.Errorf("the base lacks a program: %w", err)
		}
	}
	have, want := map[string]bool{}, map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		have[d.Name()] = true
		if d.Type().IsRegular() {
			for _, library := range libraries(path) {
				want[library] = append(want[library], strings.TrimPrefix(path, root+"/"))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var missing []string
	for library, users := range want {
		if !have[library] {
			missing = append(missing, library+" of "+users[0])
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		return fmt.Errorf("the base lacks libraries: %s", strings.Join(missing, ", "))
	}
	if len(want) == 0 {
		return fmt.Errorf("%s has no program that needs a library", root)
	}
	return nil
}

// libraries are those that a program or a library names; other files name none.
func libraries(path string) []string {
	f, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil
	}
	return names
}
