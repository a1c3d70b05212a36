package traffic

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// configMap is a directory in which the kubelet shows a ConfigMap: files are links into ..data, which is a link to the directory
// of the generation. A new generation appears in one rename.
type configMap struct {
	dir        string
	generation int
}

// write shows new content. Every file is written, as the kubelet does.
func (c *configMap) write(t *testing.T, files map[string]string) {
	t.Helper()
	old := filepath.Join(c.dir, "..generation-"+strconv.Itoa(c.generation))
	c.generation++
	name := "..generation-" + strconv.Itoa(c.generation)
	must(t, os.MkdirAll(filepath.Join(c.dir, name), 0o755))
	for file, text := range files {
		must(t, os.WriteFile(filepath.Join(c.dir, name, file), []byte(text), 0o644))
		if err := os.Symlink(filepath.Join("..data", file), filepath.Join(c.dir, file)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	must(t, os.Symlink(name, filepath.Join(c.dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(c.dir, "..data_tmp"), filepath.Join(c.dir, "..data")))
	must(t, os.RemoveAll(old))
}

// place makes a directory that the test may fill. In a guest all files are the test's; in a namespace of the host they are the
// host's, and a file system of this run hides them.
func place(t *testing.T, hide, dir string) {
	t.Helper()
	if os.Getenv("KUBE_IPVS_WHERE") != "vm" {
		must(t, unix.Mount("tmpfs", hide, "tmpfs", 0, ""))
		t.Cleanup(func() { _ = unix.Unmount(hide, unix.MNT_DETACH) })
	}
	must(t, os.MkdirAll(dir, 0o755))
}
