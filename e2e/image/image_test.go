package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// base makes a directory with everything that an image needs.
func base(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range append([]string{"lib/libc.so.6"}, needed...) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("text"), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	if err := os.Symlink("modprobe", filepath.Join(root, "sbin/lsmod")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// A layout has an index of images whose blobs are there, with the digests and sizes that are
// said, and two of the same input have the same bytes.
func TestLayout(t *testing.T) {
	program := filepath.Join(t.TempDir(), "kube-ipvs")
	if err := os.WriteFile(program, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := withELF(t, base(t))
	var tops [2]string
	for i := range tops {
		o := options{
			name: "registry.example:5000/kube-ipvs:v1", version: "v1", commit: "0123", date: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), out: filepath.Join(t.TempDir(), "image"),
			sources: []source{{"amd64", root, program}, {"arm64", root, program}},
		}
		if err := write(o); err != nil {
			t.Fatal(err)
		}
		top, err := os.ReadFile(filepath.Join(o.out, "index.json"))
		if err != nil {
			t.Fatal(err)
		}
		tops[i] = string(top)
		checkIndex(t, o.out, top)
	}
	if tops[0] != tops[1] {
		t.Errorf("two layouts of the same files differ:\n%s\n%s", tops[0], tops[1])
	}
}

// checkIndex follows the layout from its index to the files of each layer.
func checkIndex(t *testing.T, out string, top []byte) {
	t.Helper()
	var first, index manifest
	parsed(t, top, &first)
	if name := first.Manifests[0].Annotations["io.containerd.image.name"]; name != "registry.example:5000/kube-ipvs:v1" {
		t.Errorf("containerd keeps the image as %q", name)
	}
	if name := first.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; name != "v1" {
		t.Errorf("the image has tag %q", name)
	}
	parsed(t, blobOf(t, out, first.Manifests[0]), &index)
	if len(index.Manifests) != 2 {
		t.Fatalf("%d images, want 2", len(index.Manifests))
	}
	for i, arch := range []string{"amd64", "arm64"} {
		var m manifest
		var c imageConfig
		parsed(t, blobOf(t, out, index.Manifests[i]), &m)
		parsed(t, blobOf(t, out, *m.Config), &c)
		if c.Architecture != arch || index.Manifests[i].Platform.Architecture != arch || len(c.RootFS.DiffIDs) != len(m.Layers) {
			t.Errorf("image %d is %+v", i, c)
		}
		if got := c.Config.Labels["org.opencontainers.image.created"]; got != "2026-11-28T12:00:00Z" {
			t.Errorf("the image was made at %q", got)
		}
		for _, d := range m.Layers {
			checkFiles(t, blobOf(t, out, d))
		}
	}
}

func parsed(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// withELF adds a program that needs libc.so.6, made of the header and tables alone.
func withELF(t *testing.T, root string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, "bin/program"), dynamic("libc.so.6"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return root
}

// dynamic returns an ELF file with a table of what it needs.
func dynamic(library string) []byte {
	names := append([]byte{0}, library+"\x00.dynstr\x00.dynamic\x00"...)
	header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 1, Shoff: 64}
	copy(header.Ident[:], "\x7fELF\x02\x01\x01")
	begin := uint64(64 + 3*64)
	strings := elf.Section64{Name: uint32(2 + len(library)), Type: uint32(elf.SHT_STRTAB), Off: begin, Size: uint64(len(names))}
	needs := elf.Section64{Name: uint32(2 + len(library) + 8), Type: uint32(elf.SHT_DYNAMIC), Off: begin + strings.Size, Size: 32, Link: 1, Entsize: 16}
	var out bytes.Buffer
	for _, part := range []any{header, elf.Section64{}, strings, needs, names, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: 1}, elf.Dyn64{}} {
		_ = binary.Write(&out, binary.LittleEndian, part) // into a buffer
	}
	return out.Bytes()
}

// A base without a program or a library that is needed makes no image.
// TestNormalized: the name that containerd keeps is the one that a kubelet makes of the manifest's.
func TestNormalized(t *testing.T) {
	for name, want := range map[string]string{
		"kube-ipvs:dev":                   "docker.io/library/kube-ipvs:dev",
		"team/kube-ipvs:dev":              "docker.io/team/kube-ipvs:dev",
		"docker.io/kube-ipvs:dev":         "docker.io/library/kube-ipvs:dev",
		"docker.io/team/kube-ipvs:dev":    "docker.io/team/kube-ipvs:dev",
		"localhost/kube-ipvs:dev":         "localhost/kube-ipvs:dev",
		"localhost:5000/kube-ipvs:dev":    "localhost:5000/kube-ipvs:dev",
		"registry.example/a/kube-ipvs:v1": "registry.example/a/kube-ipvs:v1",
	} {
		if got := normalized(name); got != want {
			t.Errorf("%s is kept as %s, want %s", name, got, want)
		}
	}
}

func TestIncompleteBase(t *testing.T) {
	root := withELF(t, base(t))
	if err := complete(root); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"lib/libc.so.6": "libc.so.6 of bin/program", "sbin/modprobe": "lacks a program"} {
		path := filepath.Join(root, name)
		text, err := os.ReadFile(path) //nolint:gosec // made by this test
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := complete(root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: error %v, want %q", name, err, want)
		}
		if err := os.WriteFile(path, text, 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, bad := range []string{"", "-date now linux/amd64=a=b", "-date 2026-11-28T12:00:00Z", "-date 2026-11-28T12:00:00Z windows/amd64=a=b", "-date 2026-11-28T12:00:00Z linux/amd64=a"} {
		if o, err := parse(strings.Fields(bad)); err == nil {
			t.Errorf("%q is taken: %+v", bad, o)
		}
	}
}

func blobOf(t *testing.T, out string, d descriptor) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, "blobs", strings.ReplaceAll(d.Digest, ":", "/")))
	if err != nil || len(text) != d.Size || digest(text) != d.Digest {
		t.Fatalf("blob %+v has %d bytes, error %v", d, len(text), err)
	}
	return text
}

// checkFiles requires links as links, and every file of root.
func checkFiles(t *testing.T, layer []byte) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 1795867200 {
			t.Errorf("%s is of %d:%d and of %s", h.Name, h.Uid, h.Gid, h.ModTime.UTC())
		}
		if h.Name == "tmp/" && h.Mode != 0o1777 {
			t.Errorf("/tmp has mode %o", h.Mode)
		}
		if h.Typeflag == tar.TypeSymlink {
			links++
		}
	}
	if links != 1 {
		t.Errorf("%d links, want 1", links)
	}
}
