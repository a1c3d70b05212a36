package vm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kernelTree makes the files of a kernel package with the given modules.
func kernelTree(t *testing.T, root, release string, modules ...string) {
	t.Helper()
	var dep strings.Builder
	for _, module := range modules {
		dep.WriteString("kernel/net/" + module + ".ko:\n")
	}
	writeFiles(t, root, map[string]string{
		"boot/vmlinuz-" + release:                         "image",
		"lib/modules/" + release + "/modules.dep":         dep.String(),
		"lib/modules/" + release + "/modules.builtin":     "kernel/drivers/virtio/virtio_pci.ko\n",
		"lib/modules/" + release + "/kernel/net/ip_vs.ko": "",
	})
}

func TestKernelUnderTakesTheNewestThatServes(t *testing.T) {
	root := t.TempDir()
	kernelTree(t, root, "6.1.0-1", needed[0:2]...)
	if kernel, ok := kernelUnder(root); ok {
		t.Fatalf("found %v although modules are missing", kernel)
	}
	kernelTree(t, root, "6.1.0-2", "ip_vs", "dummy", "virtio_console", "virtio_net", "9p", "9pnet_virtio")
	kernelTree(t, root, "6.1.0-3", "ip_vs")
	want := Kernel{Release: "6.1.0-2", Image: filepath.Join(root, "boot/vmlinuz-6.1.0-2"), Modules: filepath.Join(root, "lib/modules/6.1.0-2")}
	got, ok := kernelUnder(root)
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("kernel, found %t (-want +got):\n%s", ok, diff)
	}
	if err := os.Remove(want.Image); err != nil {
		t.Fatal(err)
	}
	if kernel, ok := kernelUnder(root); ok {
		t.Errorf("found %v without an image", kernel)
	}
	writeFiles(t, root, map[string]string{"lib/modules/6.1.0-2/vmlinuz": "image"})
	if got, ok := kernelUnder(root); !ok || got.Image != filepath.Join(want.Modules, "vmlinuz") {
		t.Errorf("kernel = %v, %t, want the image next to the modules", got, ok)
	}
}

func TestUnpackableKernelIsUsedAsItIs(t *testing.T) {
	root, cache := t.TempDir(), t.TempDir()
	kernelTree(t, root, "6.1.0-1", needed...)
	kernel, _ := kernelUnder(root)
	var said strings.Builder
	got := kernel.unpacked(context.Background(), cache, newProgress(&said))
	if diff := cmp.Diff(kernel, got); diff != "" {
		t.Errorf("kernel (-want +got):\n%s", diff)
	}
	if !strings.Contains(said.String(), "booting the packed image") {
		t.Errorf("progress %q does not tell that the boot will take longer", said.String())
	}
	if left := names(t, cache); len(left) > 0 {
		t.Errorf("left in the cache: %v", left)
	}
}
