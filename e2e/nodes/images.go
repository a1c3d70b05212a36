package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// makeImages puts the images of the nodes where they import them from: the one under test as make image made it, and two of one
// static program each.
func (w *world) makeImages() error {
	images := filepath.Join(w.o.dir, "images")
	for _, name := range []string{"pause", "backend"} {
		program, err := os.ReadFile(filepath.Join(w.o.dir, name))
		if err != nil {
			return err
		}
		if err := writeImage(filepath.Join(images, name+".tar"), "localhost/"+name+":e2e", name, program); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}
	return copyFile(w.o.image, filepath.Join(images, "kube-ipvs.tar"))
}

// writeImage writes an archive as "docker save" does (image-spec of Docker, v1.2): one layer with one program, which is what it runs.
func writeImage(path, name, program string, text []byte) error {
	layer, err := archive(map[string][]byte{program: text})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/" + program}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	all, err := archive(map[string][]byte{"config.json": config, "manifest.json": manifest, "layer.tar": layer})
	if err != nil {
		return err
	}
	return os.WriteFile(path, all, 0o644) //nolint:gosec // nodes read it
}

// archive packs files, all of root and executable.
func archive(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return target.Close()
}
