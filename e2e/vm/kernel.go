package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kernel is a bootable image with the modules built for it.
type Kernel struct {
	Release string // as uname -r prints it
	Image   string // the file that QEMU loads
	Modules string // directory that holds modules.* and kernel/
}

// needed must be in a kernel, built in or as modules, for it to be of use here.
var needed = []string{"ip_vs", "dummy", "virtio_pci", "virtio_console", "virtio_net", "9p", "9pnet_virtio"}

// kernelFinder finds a kernel, and fills the cache with it when it has to.
type kernelFinder = func(ctx context.Context, cache string, log *progress) (Kernel, error)

// kernelOf returns a finder for QEMU: of the kernel of a suite of Debian, or without one of this machine's distribution.
func kernelOf(suite string) kernelFinder {
	return func(ctx context.Context, cache string, log *progress) (Kernel, error) {
		kernel, err := findPacked(ctx, suite, cache, log)
		if err != nil {
			return Kernel{}, err
		}
		return kernel.unpacked(ctx, cache, log), nil
	}
}

// findPacked prefers what is there: the host's own kernels, unless a suite is named, then the cache, then the package.
func findPacked(ctx context.Context, suite, cache string, log *progress) (Kernel, error) {
	root := filepath.Join(cache, "kernel")
	if suite != "" {
		root += "-" + suite
	} else if kernel, ok := kernelUnder("/"); ok {
		return kernel, nil
	}
	if kernel, ok := kernelUnder(root); ok {
		return kernel, nil
	}
	err := publish(root, func(tmp string) error { return fetchKernel(ctx, suite, tmp, log) })
	if err != nil {
		return Kernel{}, fmt.Errorf("fetch a kernel with ip_vs: %w", err)
	}
	if kernel, ok := kernelUnder(root); ok {
		return kernel, nil
	}
	return Kernel{}, fmt.Errorf("the kernel unpacked in %s lacks one of %s", root, strings.Join(needed, " "))
}

// unpacked returns the kernel with its image replaced by the ELF file inside, kept in the cache under the image's size and age.
// A kernel that cannot be unpacked is used as it is: it only boots slower.
func (k Kernel) unpacked(ctx context.Context, cache string, log *progress) Kernel {
	info, err := os.Stat(k.Image)
	if err != nil {
		return k
	}
	path := filepath.Join(cache, fmt.Sprintf("vmlinux-%s-%x-%x", k.Release, info.Size(), info.ModTime().Unix()))
	if !exists(path) {
		err := publish(path, func(tmp string) error { return unpackImage(ctx, k.Image, tmp) })
		if err != nil {
			log.printf("kernel: booting the packed image, which takes longer: %v", err)
			return k
		}
	}
	k.Image = path
	return k
}

// kernelUnder looks for a complete kernel below a root directory, the newest name first.
func kernelUnder(root string) (Kernel, bool) {
	dirs, _ := filepath.Glob(filepath.Join(root, "lib/modules/*"))
	slices.Sort(dirs)
	slices.Reverse(dirs)
	for _, dir := range dirs {
		kernel := Kernel{Release: filepath.Base(dir), Modules: dir}
		kernel.Image = readableImage(filepath.Join(root, "boot/vmlinuz-"+kernel.Release), filepath.Join(dir, "vmlinuz"))
		if kernel.Image == "" {
			continue
		}
		index, err := indexModules(dir)
		if err == nil && index.hasAll(needed) {
			return kernel, true
		}
	}
	return Kernel{}, false
}

// readableImage returns the first path that can be opened; some distributions keep images for root's eyes only.
func readableImage(paths ...string) string {
	for _, path := range paths {
		file, err := os.Open(path)
		if err == nil {
			file.Close()
			return path
		}
	}
	return ""
}
