package vm

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

var (
	//go:embed uml.config
	umlConfig string
	//go:embed uml.clock
	umlClock string
)

// umlSuite is where the source of the kernel comes from: system calls without ptrace are younger than the kernel of the distributions
// that this runs on.
const umlSuite = "testing"

// findUML finds a kernel of User-mode Linux, and builds it once, which takes some minutes.
func findUML(ctx context.Context, cache string, log *progress) (Kernel, error) {
	root := umlRoot(cache)
	if !exists(root) {
		if err := publish(root, func(tmp string) error { return buildUML(ctx, tmp, log) }); err != nil {
			return Kernel{}, fmt.Errorf("build a kernel of User-mode Linux: %w", err)
		}
	}
	release, err := os.ReadFile(filepath.Join(root, "release"))
	if err != nil {
		return Kernel{}, err
	}
	return Kernel{Release: strings.TrimSpace(string(release)), Image: filepath.Join(root, "linux"), Modules: filepath.Join(root, "modules")}, nil
}

// umlRoot is where it is kept: its name has a hash of its parts.
func umlRoot(cache string) string {
	sum := sha256.Sum256([]byte(umlConfig + umlClock + strconv.Itoa(umlTick)))
	return filepath.Join(cache, fmt.Sprintf("uml-%x", sum[:6]))
}

// umlTools are what it is built with; e2e/install.sh uml brings them.
var umlTools = strings.Fields("make gcc flex bison bc xz tar dpkg apt-get apt-cache")

// buildUML makes the program in dir, with the lists of what it has built in.
func buildUML(ctx context.Context, dir string, log *progress) error {
	var missing []string
	for _, tool := range umlTools {
		if _, ok := lookTool(tool); !ok {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this machine lacks %s: run e2e/install.sh uml", strings.Join(missing, ", "))
	}
	source, err := fetchUML(ctx, filepath.Dir(dir), log)
	if err != nil {
		return err
	}
	run := func(args ...string) (string, error) {
		return output(ctx, source, "make", append([]string{"-s", "ARCH=um"}, args...)...)
	}
	release, err := configureUML(source, run)
	if err != nil {
		return err
	}
	log.printf("kernel: building %s as a program, some minutes", release)
	if _, err := run("-j", strconv.Itoa(runtime.NumCPU()), "linux"); err != nil {
		return err
	}
	modules := filepath.Join(dir, "modules")
	if err := os.MkdirAll(modules, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, name := range []string{"modules.dep", "modules.order"} {
		errs = append(errs, os.WriteFile(filepath.Join(modules, name), nil, 0o644))
	}
	for _, name := range []string{"modules.builtin", "modules.builtin.modinfo"} {
		errs = append(errs, copyFile(filepath.Join(source, name), filepath.Join(modules, name), 0o644))
	}
	return errors.Join(append(errs, os.WriteFile(filepath.Join(dir, "release"), []byte(release), 0o644),
		copyFile(filepath.Join(source, "linux"), filepath.Join(dir, "linux"), 0o755))...)
}

// configureUML adds ours to the defaults, and returns the kernel's release. An option that is
// missing in the result has another name by now, or depends on another option.
func configureUML(source string, run func(...string) (string, error)) (release string, err error) {
	if _, err := run("x86_64_defconfig"); err != nil {
		return "", err
	}
	path := filepath.Join(source, ".config")
	if err := errors.Join(appendTo(path, umlConfig), appendTo(filepath.Join(source, "arch/um/kernel/time.c"), umlClock)); err != nil {
		return "", err
	}
	if err := setTick(source); err != nil {
		return "", err
	}
	if _, err := run("olddefconfig"); err != nil {
		return "", err
	}
	result, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if lacks := lacking(umlConfig, string(result)); len(lacks) > 0 {
		return "", fmt.Errorf("the kernel cannot be configured with %s", strings.Join(lacks, " "))
	}
	text, err := run("kernelrelease")
	return strings.TrimSpace(text), err
}

// umlTick is how often a second the clock ticks: as in Debian's own kernels (CONFIG_HZ). Tasks that share a CPU change over at a tick, and
// with the 100 of UML what is measured in milliseconds waited for some.
const umlTick = 250

// fixedTick is the option in UML, where it has no choices.
const fixedTick = "config HZ\n\tint\n\tdefault "

// setTick has the clock tick umlTick times a second.
func setTick(source string) error {
	path := filepath.Join(source, "arch/um/Kconfig")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	const theirs = fixedTick + "100\n"
	if strings.Count(string(text), theirs) != 1 {
		return fmt.Errorf("how often the clock ticks is not where it was: %s lacks %q", path, theirs)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), theirs, fixedTick+strconv.Itoa(umlTick)+"\n", 1)), 0o644)
}

// appendTo adds to a file that is there.
func appendTo(path, text string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

// lacking are the options that are asked for and not in a configuration.
func lacking(asked, result string) (lacks []string) {
	have := strings.Split(result, "\n")
	for line := range strings.Lines(asked) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "CONFIG_") && !slices.Contains(have, line) {
			lacks = append(lacks, line)
		}
	}
	return lacks
}

// fetchUML unpacks the source below dir.
func fetchUML(ctx context.Context, dir string, log *progress) (source string, err error) {
	from, err := openSuite(ctx, dir, umlSuite)
	if err != nil {
		return "", err
	}
	depends, err := from.depends(ctx, "linux-source")
	if err != nil {
		return "", err
	}
	name := ""
	for _, word := range strings.Fields(depends) {
		if strings.HasPrefix(word, "linux-source-") {
			name = word
		}
	}
	if name == "" {
		return "", errors.New("apt knows no linux-source")
	}
	log.printf("kernel: downloading %s", name)
	if err := from.download(ctx, dir, name); err != nil {
		return "", err
	}
	debs, _ := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if len(debs) != 1 {
		return "", fmt.Errorf("%d packages of %s arrived", len(debs), name)
	}
	if _, err := output(ctx, dir, "dpkg", "-x", debs[0], dir); err != nil {
		return "", err
	}
	log.printf("kernel: unpacking %s", name)
	if _, err := output(ctx, dir, "tar", "-xf", filepath.Join(dir, "usr/src", name+".tar.xz")); err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}
