package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

// State is the state of a module after Load.
type State uint8

const (
	// BuiltIn modules are part of the kernel.
	BuiltIn State = iota + 1
	// Loaded modules were there before the call.
	Loaded
	// Inserted modules were loaded by the call.
	Inserted
	// Absent modules are neither. A kernel that does not show what it has may still have them.
	Absent
)

var moduleStates = [...]string{BuiltIn: "built in", Loaded: "loaded", Inserted: "inserted", Absent: "absent"}

// String returns the state in words.
func (s State) String() string {
	if s >= BuiltIn && int(s) < len(moduleStates) {
		return moduleStates[s]
	}
	return fmt.Sprintf("module state(%d)", uint8(s))
}

// Result is the result for one module. Err and Fix are set if it is absent.
type Result struct {
	Name  string
	State State
	Err   error
	Fix   string
}

// Options configure a Loader. The zero value is the default.
type Options struct {
	Files procfs.Files
	// Modprobe is the program that loads modules; "modprobe" from PATH if empty.
	Modprobe string
	// Timeout bounds each run of it; 30 s if zero.
	Timeout time.Duration
}

// Loader loads modules of the kernel, and finds which it has.
type Loader struct {
	log          *zap.Logger
	files        procfs.Files
	modprobePath string
	timeout      time.Duration
}

// New returns a loader. It loads nothing.
func New(log *zap.Logger, o Options) *Loader {
	l := &Loader{log: log.Named("tune"), files: o.Files, modprobePath: o.Modprobe, timeout: o.Timeout}
	if l.modprobePath == "" {
		l.modprobePath = "modprobe"
	}
	if l.timeout <= 0 {
		l.timeout = 30 * time.Second
	}
	return l
}

// Neither names nor parameters may look like an option of modprobe.
var (
	moduleName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)
	moduleParam = regexp.MustCompile(`^[A-Za-z0-9_]+=\S+$`)
)

// insertion is one run of modprobe.
type insertion struct {
	args    []string
	modules []*Result
}

// Load makes sure of modules and returns one result each, in order. Modules that are built in or loaded already are not touched. One run of
// modprobe loads the rest. A name with parameters, as in "ip_vs conn_tab_bits=20", has a run of its own
// before the others: a module that depends on it would load it without them. Nothing here is fatal.
func (l *Loader) Load(ctx context.Context, names ...string) []Result {
	builtIn := l.builtInModules()
	results := make([]Result, len(names))
	var runs []insertion
	plain := insertion{args: []string{"-a"}}
	for i, spec := range names {
		r, words := &results[i], strings.Fields(spec)
		if err := validModule(words); err != nil {
			*r = Result{Name: spec, State: Absent, Err: fmt.Errorf("load module %q: %w", spec, err)}
			continue
		}
		r.Name = words[0]
		r.State = l.state(r.Name, builtIn)
		switch {
		case r.State != Absent:
		case len(words) > 1:
			runs = append(runs, insertion{words, []*Result{r}})
		default:
			plain.args, plain.modules = append(plain.args, r.Name), append(plain.modules, r)
		}
	}
	if len(plain.modules) > 0 {
		runs = append(runs, plain)
	}
	for _, run := range runs {
		l.insert(ctx, run)
	}
	l.reportMissing(runs)
	return results
}

func validModule(words []string) error {
	if len(words) == 0 || !moduleName.MatchString(words[0]) {
		return errors.New("not the name of a module")
	}
	for _, w := range words[1:] {
		if !moduleParam.MatchString(w) {
			return fmt.Errorf("%q is not a parameter", w)
		}
	}
	return nil
}

// insert runs modprobe once and sets the state of the modules it was for. After a failure it finds
// out which of them are loaded all the same.
func (l *Loader) insert(ctx context.Context, run insertion) {
	said, err := l.modprobe(ctx, run.args)
	for _, m := range run.modules {
		if err == nil || l.state(m.Name, nil) == Loaded {
			m.State = Inserted
			l.log.Info("module loaded", zap.String("module", m.Name))
			continue
		}
		m.Err = fmt.Errorf("load module %s: %w", m.Name, blame(m.Name, said, err))
		m.Fix = l.Fix(m.Name)
	}
}

// Ensure loads a module unless the kernel has it, which a sysctl shows that the module adds. It logs
// nothing but that it has loaded it. The kernel may have no file of a module that is built in.
func (l *Loader) Ensure(ctx context.Context, module, sysctl string) error {
	if l.hasSysctl(ctx, sysctl) {
		return nil
	}
	said, err := l.modprobe(ctx, []string{module})
	if l.hasSysctl(ctx, sysctl) {
		l.log.Info("module loaded", zap.String("module", module))
		return nil
	}
	if err == nil {
		err = fmt.Errorf("the kernel has no %s", sysctl)
	}
	return fmt.Errorf("load module %s: %w", module, blame(module, said, err))
}

// hasSysctl reports whether a sysctl exists; one that cannot be read does.
func (l *Loader) hasSysctl(ctx context.Context, key string) bool {
	name, err := procfs.SysctlPath(key)
	if err == nil {
		_, err = l.files.Get(ctx, name)
	}
	return !errors.Is(err, os.ErrNotExist)
}

// reportMissing logs what modprobe could not load. Where the node shows no modules
// at all, as in most containers, they may be built in, and their use will show that. Where it shows some,
// each refusal is a warning.
func (l *Loader) reportMissing(runs []insertion) {
	_, visible := l.modulesDir()
	var unknown []string
	for _, run := range runs {
		for _, m := range run.modules {
			switch {
			case m.State != Absent:
			case visible:
				l.log.Warn("module not loaded", zap.String("module", m.Name), zap.Error(m.Err))
			default:
				unknown = append(unknown, m.Name)
			}
		}
	}
	if len(unknown) > 0 {
		l.log.Info("kernel modules not loaded, they may be built in", zap.Strings("modules", unknown))
	}
}

// modulesDir returns the directory of the running kernel's modules, and whether it can be seen from here.
func (l *Loader) modulesDir() (dir string, visible bool) {
	release, err := l.files.Release()
	if err != nil {
		release = "$(uname -r)"
	}
	dir = path.Join("/lib/modules", release)
	_, err = os.Stat(l.files.Path(dir))
	return dir, !errors.Is(err, os.ErrNotExist)
}

// modprobe runs the program and returns what it said.
func (l *Loader) modprobe(ctx context.Context, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, l.modprobePath, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	// A child of modprobe may hold the pipe open after modprobe was killed.
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("modprobe did not exit: %w", ctx.Err())
	}
	return said.String(), err
}

// blame picks the lines about one module out of what a run for several said.
func blame(name, said string, err error) error {
	var lines []string
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
	for line := range strings.Lines(said) {
		if word.MatchString(line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", strings.Join(lines, "; "), err)
}

// state returns whether a module is loaded, by the files of the kernel. A built-in module is among the
// loaded ones only if it has parameters, hence the list.
func (l *Loader) state(name string, builtIn map[string]bool) State {
	name = underscored(name)
	if builtIn[name] {
		return BuiltIn
	}
	if _, err := os.Stat(l.files.Path("sys/module", name)); err == nil {
		return Loaded
	}
	return Absent
}

// builtInModules returns what depmod knows to be part of the kernel; nothing if
// the node does not say.
func (l *Loader) builtInModules() map[string]bool {
	return l.moduleList("modules.builtin", func(line string) string { return line })
}

// moduleList reads the module names from a file of depmod(8), where file picks the
// module's file out of a line.
func (l *Loader) moduleList(name string, file func(line string) string) map[string]bool {
	release, err := l.files.Release()
	if err != nil {
		return nil
	}
	b, err := os.ReadFile(l.files.Path("lib/modules", release, name))
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		base, _, _ := strings.Cut(path.Base(file(strings.TrimSpace(line))), ".ko")
		names[underscored(base)] = true
	}
	return names
}

// underscored returns the name as the kernel has it; file names may have dashes.
func underscored(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Fix returns the remedy for a module that is not there. It tells
// apart a container that cannot see the modules, a module that only has to be
// loaded, and a kernel that was packaged without it.
func (l *Loader) Fix(name string) string {
	dir, visible := l.modulesDir()
	if !visible {
		return fmt.Sprintf("%s: this kernel has it neither built in nor in %s; in a container mount the host's /lib/modules; "+
			"else boot a kernel that has it (a distribution's stock one)", name, dir)
	}
	available := l.moduleList("modules.dep", func(line string) string {
		file, _, _ := strings.Cut(line, ":")
		return file
	})
	if available[underscored(name)] {
		return fmt.Sprintf("%s: in %s but not loaded; as root on the host: modprobe %s", name, dir, name)
	}
	return fmt.Sprintf("%s: not in this kernel; on Ubuntu: apt install linux-modules-extra-%s; "+
		"on Debian: the full linux-image package instead of a cloud one; "+
		"on RHEL and Fedora: dnf install kernel-modules-extra; then modprobe %s", name, path.Base(dir), name)
}

// IPVS returns the module ip_vs with a connection table of 1<<bits buckets,
// for Load; 0 leaves the size to the kernel.
func IPVS(bits int) string {
	if bits == 0 {
		return "ip_vs"
	}
	return fmt.Sprintf("ip_vs conn_tab_bits=%d", bits)
}
