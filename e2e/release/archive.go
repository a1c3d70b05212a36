package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// archive writes files below a directory of the archive, all of root and of one time.
func archive(path, dir string, date time.Time, files []entry) error {
	var out bytes.Buffer
	zipper, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(zipper)
	for _, f := range files {
		h := &tar.Header{Name: dir + "/" + f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: date, Format: tar.FormatUSTAR}
		if f.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := zipper.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644) //nolint:gosec // it is published
}

// unpack returns the regular files and links of a compressed tar file.
func unpack(r io.Reader) ([]entry, error) {
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	var files []entry
	for t := tar.NewReader(zipped); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeSymlink {
			files = append(files, entry{name: strings.TrimPrefix(h.Name, "./"), mode: h.Mode, link: h.Linkname})
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		files = append(files, entry{name: strings.TrimPrefix(h.Name, "./"), mode: h.Mode, data: data})
	}
}

// writeSums writes SHA256SUMS, as sha256sum -c reads it.
func writeSums(dir string) error {
	sums, err := sumsOf(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), sums, 0o644) //nolint:gosec // it is published
}

// sumsOf returns the sums of all other files in a directory, in order of their names.
func sumsOf(dir string) ([]byte, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, f := range files {
		if f.Name() == "SHA256SUMS" || f.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(text), f.Name())
	}
	return out.Bytes(), nil
}
