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

// A umlBuild is a configuration of the kernel of User-mode Linux.
type umlBuild struct {
	name    string   // the first part of its name in the cache
	without []string // options of uml.config whose names begin so are left out
	never   []string // options that the kernel must not have
}

var (
	umlFull = umlBuild{name: "uml"}
	// umlNFT has IPVS and nf_tables, and neither ipset nor iptables, as the package kernel-modules-core of RHEL 10.
	umlNFT = umlBuild{
		name: "uml-nft", without: []string{"IP_SET", "NETFILTER_XT", "NFT_COMPAT", "IP_NF_", "IP6_NF_"},
		never: []string{"IP_SET", "NETFILTER_XTABLES", "NFT_COMPAT"},
	}
	// umlNoIPVS has everything else.
	umlNoIPVS = umlBuild{name: "uml-noipvs", without: []string{"IP_VS", "NETFILTER_XT_MATCH_IPVS"}, never: []string{"IP_VS"}}
)

// config returns the options beyond the defaults.
func (b umlBuild) config() string {
	var out strings.Builder
	for line := range strings.Lines(umlConfig) {
		name, set := strings.CutPrefix(line, "CONFIG_")
		if !set || !slices.ContainsFunc(b.without, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			out.WriteString(line)
		}
	}
	for _, name := range b.never {
		fmt.Fprintf(&out, unset+"\n", name)
	}
	return out.String()
}

// unset is the line of an option that a configuration does not have.
const unset = "# CONFIG_%s is not set"

// find finds the kernel, and builds it once, which takes some minutes.
func (b umlBuild) find(ctx context.Context, cache string, log *progress) (Kernel, error) {
	root := b.root(cache)
	if !exists(root) {
		if err := publish(root, func(tmp string) error { return b.build(ctx, tmp, log) }); err != nil {
			return Kernel{}, fmt.Errorf("build a kernel of User-mode Linux: %w", err)
		}
	}
	release, err := os.ReadFile(filepath.Join(root, "release"))
	if err != nil {
		return Kernel{}, err
	}
	return Kernel{Release: strings.TrimSpace(string(release)), Image: filepath.Join(root, "linux"), Modules: filepath.Join(root, "modules")}, nil
}

// root is the directory that has the kernel. The sum of its sources is in its name.
func (b umlBuild) root(cache string) string {
	sum := sha256.Sum256([]byte(keyHead + withoutComments(b.config()) + umlClock + strconv.Itoa(umlTick)))
	return filepath.Join(cache, fmt.Sprintf("%s-%x", b.name, sum[:6]))
}

// keyHead was the comment of uml.config while comments were part of the sum. With it, kernels that were built then are still found.
const keyHead = "# The options of the User-mode Linux kernel beyond its own defaults: everything in one file, no modules. The result must have each line.\n"

// withoutComments leaves out lines that are no option.
func withoutComments(config string) string {
	var out strings.Builder
	for line := range strings.Lines(config) {
		if !strings.HasPrefix(line, "#") || strings.HasPrefix(line, "# CONFIG_") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// umlTools are what it is built with; e2e/install.sh uml brings them.
var umlTools = strings.Fields("make gcc flex bison bc xz tar dpkg apt-get apt-cache")

// build makes the program in dir, with the lists of what it has built in.
func (b umlBuild) build(ctx context.Context, dir string, log *progress) error {
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
	release, err := b.configure(source, run)
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

// configure adds ours to the defaults, and returns the kernel's release. An option that is
// missing in the result has another name by now, or depends on another option.
func (b umlBuild) configure(source string, run func(...string) (string, error)) (release string, err error) {
	if _, err := run("x86_64_defconfig"); err != nil {
		return "", err
	}
	path := filepath.Join(source, ".config")
	if err := errors.Join(appendTo(path, b.config()), appendTo(filepath.Join(source, "arch/um/kernel/time.c"), umlClock)); err != nil {
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
	if lacks := lacking(b.config(), string(result)); len(lacks) > 0 {
		return "", fmt.Errorf("the kernel cannot be configured with %s", strings.Join(lacks, " "))
	}
	for _, name := range b.never {
		if strings.Contains(string(result), "\nCONFIG_"+name+"=") {
			return "", fmt.Errorf("the kernel cannot be configured without CONFIG_%s", name)
		}
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
