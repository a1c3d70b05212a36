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

// metaPackages name the newest generic kernel of Debian and Ubuntu. The cloud flavours are smaller but lack 9p.
var metaPackages = []string{"linux-image-amd64", "linux-image-generic"}

// fetchKernel downloads the packages of a kernel and unpacks them into dir. They are never installed: the package database and
// the boot loader of the host stay as they are. Without a suite the kernel is the one of this machine's distribution.
func fetchKernel(ctx context.Context, suite, dir string, log *progress) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("this machine has no apt-get: install a kernel package that has ip_vs under /lib/modules and /boot")
	}
	debs, err := os.MkdirTemp(filepath.Dir(dir), "debs-") // inside the directory that publish removes
	if err != nil {
		return err
	}
	if suite != "" {
		from, err := openSuite(ctx, debs, suite)
		if err == nil {
			err = from.downloadKernel(ctx, debs, log)
		}
		if err != nil {
			return fmt.Errorf("the kernel of %s: %w", suite, err)
		}
		return unpack(ctx, debs, dir, log)
	}
	var here aptLists
	err = here.downloadKernel(ctx, debs, log)
	if err != nil {
		// No package lists, as in a fresh container, or old ones that name a version the mirror has dropped.
		log.printf("kernel: reading package lists (apt-get update), because %s", lastLines(err.Error(), 1))
		if err := here.update(ctx, debs); err != nil {
			return err
		}
		err = here.downloadKernel(ctx, debs, log)
	}
	if err != nil {
		return err
	}
	return unpack(ctx, debs, dir, log)
}

// downloadKernel fetches the newest kernel of the lists into the directory debs.
func (l aptLists) downloadKernel(ctx context.Context, debs string, log *progress) error {
	packages := l.kernelPackages(ctx)
	if len(packages) == 0 {
		return fmt.Errorf("apt knows none of %s", strings.Join(metaPackages, ", "))
	}
	log.printf("kernel: downloading %s", strings.Join(packages, " "))
	return l.download(ctx, debs, packages...)
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

// kernelPackages asks apt for the packages behind the generic kernel.
func (l aptLists) kernelPackages(ctx context.Context) []string {
	for _, meta := range metaPackages {
		text, err := l.depends(ctx, "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts",
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
// modules off the image and ip_vs off the modules, and Debian 14 splits the image and the list of what is built in off
// their package.
var kernelPackage = regexp.MustCompile(`^linux-(image|base|binary|modules|modules-extra)-[0-9][^ ]*$`)

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
