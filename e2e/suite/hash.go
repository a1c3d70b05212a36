package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// hashOf returns a short hash of all files below a directory and of the compiler's version.
func hashOf(dir string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version())
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(hash, "%s %d\n%s", path[len(root):], len(text), text)
		return err
	})
	return fmt.Sprintf("%x", hash.Sum(nil)[:6]), err
}
