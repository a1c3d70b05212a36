package tune

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
)

// ModuleState is where a module stands after LoadModules.
type ModuleState uint8

const (
	// BuiltIn modules are part of the kernel.
	BuiltIn ModuleState = iota + 1
	// Loaded modules were there before the call.
	Loaded
	// Inserted modules were loaded by the call.
	Inserted
	// Absent modules are neither; what needs them may still turn out to work, on
	// a kernel that does not tell what it has.
	Absent
)

var moduleStates = [...]string{BuiltIn: "built in", Loaded: "loaded", Inserted: "inserted", Absent: "absent"}

// String returns the state in words.
func (s ModuleState) String() string {
	if s >= BuiltIn && int(s) < len(moduleStates) {
		return moduleStates[s]
	}
	return fmt.Sprintf("module state(%d)", uint8(s))
}

// ModuleResult tells where one module stands. Err and Fix are set if it is absent.
type ModuleResult struct {
	Name  string
	State ModuleState
	Err   error
	Fix   string
}

// Neither names nor parameters may look like an option of modprobe.
var (
	moduleName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)
	moduleParam = regexp.MustCompile(`^[A-Za-z0-9_]+=\S+$`)
)

// insertion is one run of modprobe.
type insertion struct {
	args    []string
	modules []*ModuleResult
}

// LoadModules makes sure of modules and returns one result each, in order. Modules that are built
// in or loaded already are not touched. The others are loaded by one run of modprobe. A name
// followed by parameters, as in "ip_vs conn_tab_bits=20", has a run of its own before that, because
// a module that depends on it would load it without the parameters. Nothing here is fatal.
func (t *Tuner) LoadModules(ctx context.Context, names ...string) []ModuleResult {
	builtIn := t.builtInModules()
	results := make([]ModuleResult, len(names))
	var runs []insertion
	plain := insertion{args: []string{"-a"}}
	for i, spec := range names {
		r, words := &results[i], strings.Fields(spec)
		if err := validModule(words); err != nil {
			*r = ModuleResult{Name: spec, State: Absent, Err: fmt.Errorf("load module %q: %w", spec, err)}
			continue
		}
		r.Name = words[0]
		r.State = t.moduleState(r.Name, builtIn)
		switch {
		case r.State != Absent:
		case len(words) > 1:
			runs = append(runs, insertion{words, []*ModuleResult{r}})
		default:
			plain.args, plain.modules = append(plain.args, r.Name), append(plain.modules, r)
		}
	}
	if len(plain.modules) > 0 {
		runs = append(runs, plain)
	}
	for _, run := range runs {
		t.insert(ctx, run)
	}
	t.reportMissing(runs)
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

// insert runs modprobe once and sets the state of the modules it was for. After a
// failure those that are there all the same are told from those that are not.
func (t *Tuner) insert(ctx context.Context, run insertion) {
	said, err := t.modprobe(ctx, run.args)
	for _, m := range run.modules {
		if err == nil || t.moduleState(m.Name, nil) == Loaded {
			m.State = Inserted
			t.log.Info("module loaded", zap.String("module", m.Name))
			continue
		}
		m.Err = fmt.Errorf("load module %s: %w", m.Name, blame(m.Name, said, err))
		m.Fix = t.ModuleFix(m.Name)
	}
}

// reportMissing logs what modprobe could not load. If the node shows no modules at all, as in most
// containers, it is unknown whether the kernel has them built in, and use will show. If it does
// show some, each refusal is a warning.
func (t *Tuner) reportMissing(runs []insertion) {
	_, visible := t.modulesDir()
	var unknown []string
	for _, run := range runs {
		for _, m := range run.modules {
			switch {
			case m.State != Absent:
			case visible:
				t.log.Warn("module not loaded", zap.String("module", m.Name), zap.Error(m.Err))
			default:
				unknown = append(unknown, m.Name)
			}
		}
	}
	if len(unknown) > 0 {
		t.log.Info("kernel modules not loaded, they may be built in", zap.Strings("modules", unknown))
	}
}

// modulesDir returns the directory of the running kernel's modules, and reports whether it is
// visible from here.
func (t *Tuner) modulesDir() (dir string, visible bool) {
	release, err := t.Release()
	if err != nil {
		release = "$(uname -r)"
	}
	dir = path.Join("/lib/modules", release)
	_, err = os.Stat(t.path(dir))
	return dir, !errors.Is(err, os.ErrNotExist)
}

// modprobe runs the program and returns what it said.
func (t *Tuner) modprobe(ctx context.Context, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, t.opts.Modprobe, args...)
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

// moduleState looks at what the kernel shows. A built-in module is among the
// loaded ones only if it has parameters, hence the list.
func (t *Tuner) moduleState(name string, builtIn map[string]bool) ModuleState {
	name = underscored(name)
	if builtIn[name] {
		return BuiltIn
	}
	if _, err := os.Stat(t.path("sys/module", name)); err == nil {
		return Loaded
	}
	return Absent
}

// builtInModules returns what depmod knows to be part of the kernel; nothing if
// the node does not say.
func (t *Tuner) builtInModules() map[string]bool {
	return t.moduleList("modules.builtin", func(line string) string { return line })
}

// moduleList reads the module names from a file of depmod(8), where file picks the
// module's file out of a line.
func (t *Tuner) moduleList(name string, file func(line string) string) map[string]bool {
	release, err := t.Release()
	if err != nil {
		return nil
	}
	b, err := os.ReadFile(t.path("lib/modules", release, name))
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

// ModuleFix says what a person can do about a module that is not there. It tells
// apart a container that cannot see the modules, a module that only has to be
// loaded, and a kernel that was packaged without it.
func (t *Tuner) ModuleFix(name string) string {
	dir, visible := t.modulesDir()
	if !visible {
		return fmt.Sprintf("%s: this kernel has it neither built in nor in %s; in a container mount the host's /lib/modules; "+
			"else boot a kernel that has it (a distribution's stock one)", name, dir)
	}
	available := t.moduleList("modules.dep", func(line string) string {
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
