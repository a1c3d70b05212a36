package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Kernel is a bootable image with the modules built for it.
type Kernel struct {
	Release string // as uname -r says
	Image   string // what QEMU loads
	Modules string // directory that holds modules.* and kernel/
}

// needed must be in a kernel, built in or as modules, for it to be of use here.
var needed = []string{"ip_vs", "dummy", "virtio_pci", "virtio_console", "virtio_net", "9p", "9pnet_virtio"}

// findKernel prefers what is there: the host's own kernels, then the cache, then the distribution's package.
func findKernel(ctx context.Context, cache string, log *progress) (Kernel, error) {
	if kernel, ok := kernelUnder("/"); ok {
		return kernel, nil
	}
	root := filepath.Join(cache, "kernel")
	if kernel, ok := kernelUnder(root); ok {
		return kernel, nil
	}
	err := publish(root, func(tmp string) error { return fetchKernel(ctx, tmp, log) })
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

// metaPackages name the newest generic kernel of Debian and Ubuntu. The cloud flavours are smaller but lack 9p.
var metaPackages = []string{"linux-image-amd64", "linux-image-generic"}

// fetchKernel downloads the packages of a kernel and unpacks them into dir. They are never installed: the package database and
// the boot loader of the host stay as they are.
func fetchKernel(ctx context.Context, dir string, log *progress) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("this machine has no apt-get: install a kernel package that has ip_vs under /lib/modules and /boot")
	}
	packages, err := kernelPackages(ctx, log)
	if err != nil {
		return err
	}
	debs, err := os.MkdirTemp(filepath.Dir(dir), "debs-")
	if err != nil {
		return err
	}
	log.printf("kernel: downloading %s", strings.Join(packages, " "))
	args := append([]string{"-q", "-o", "APT::Sandbox::User=root", "download"}, packages...)
	if _, err := output(ctx, debs, "apt-get", args...); err != nil {
		return err
	}
	return unpack(ctx, debs, dir, log)
}

func unpack(ctx context.Context, debs, dir string, log *progress) error {
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no package arrived in %s", debs)
	}
	for _, file := range files {
		log.printf("kernel: unpacking %s (%s)", filepath.Base(file), fileSize(file))
		if _, err := output(ctx, debs, "dpkg", "-x", file, dir); err != nil {
			return err
		}
	}
	return indexUnpacked(ctx, dir)
}

// indexUnpacked does what installing the package would have done: modules.dep is made on the machine, not shipped.
func indexUnpacked(ctx context.Context, dir string) error {
	if !exists(filepath.Join(dir, "lib/modules")) {
		// Newer distributions ship usr/lib only and expect /lib to lead there.
		if err := os.Symlink("usr/lib", filepath.Join(dir, "lib")); err != nil {
			return err
		}
	}
	releases, err := filepath.Glob(filepath.Join(dir, "lib/modules/*"))
	if err != nil {
		return err
	}
	for _, release := range releases {
		if _, err := output(ctx, dir, "depmod", "-b", dir, filepath.Base(release)); err != nil {
			return err
		}
	}
	return nil
}

// kernelPackages asks apt for the packages behind the generic kernel, reading the package lists first if there are none.
func kernelPackages(ctx context.Context, log *progress) ([]string, error) {
	if found := askKernelPackages(ctx); len(found) > 0 {
		return found, nil
	}
	log.printf("kernel: reading package lists (apt-get update)")
	if _, err := output(ctx, "/", "apt-get", "-q", "update"); err != nil {
		return nil, err
	}
	if found := askKernelPackages(ctx); len(found) > 0 {
		return found, nil
	}
	return nil, fmt.Errorf("apt knows none of %s", strings.Join(metaPackages, ", "))
}

func askKernelPackages(ctx context.Context) []string {
	for _, meta := range metaPackages {
		text, err := output(ctx, "/", "apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts",
			"--no-breaks", "--no-replaces", "--no-enhances", meta)
		if err != nil {
			continue
		}
		if found := parseKernelPackages(text); len(found) > 0 {
			return found
		}
	}
	return nil
}

// kernelPackage matches a package that carries an image or modules: the digit tells it from a meta package. Ubuntu splits the
// modules off the image and ip_vs off the modules.
var kernelPackage = regexp.MustCompile(`^linux-(image|modules|modules-extra)-[0-9][^ ]*$`)

// parseKernelPackages picks the kernel packages out of what "apt-cache depends --recurse" prints: package names start a line,
// their dependencies are indented. Alternatives ("|Depends") are skipped: the signed image comes first and is enough.
func parseKernelPackages(text string) []string {
	var found []string
	scanner := bufio.NewScanner(strings.NewReader(text))
	for scanner.Scan() {
		name, ok := strings.CutPrefix(strings.TrimSpace(scanner.Text()), "Depends: ")
		if ok && kernelPackage.MatchString(name) && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found
}
