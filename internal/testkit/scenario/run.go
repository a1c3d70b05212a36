package scenario

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Options say which files run and on what.
type Options struct {
	// Files are the scenarios; see List.
	Files []string
	// Driver is the condition that is true, "fakes" or "kernel", and Open makes one
	// for a script whose manifests are in the directory manifests of work.
	Driver string
	Open   func(work string) (Driver, error)
	// Update rewrites what is expected to what is there once nothing moves any
	// more. Read the difference before believing it.
	Update bool
	// Rough means that calls fail behind the script's back, Crash that agents die too:
	// only where the kernel ends up counts, not what was written on the way.
	Rough, Crash bool
}

// List returns the scenario files of a directory and fails the test if it has none.
func List(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in %s: %v", dir, err)
	}
	return files
}

// Run runs every file as a parallel subtest.
func Run(t *testing.T, o Options) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Files:              o.Files,
		Setup:              func(env *testscript.Env) error { return setUp(o, env) },
		Condition:          o.condition,
		Cmds:               commands(),
		RequireUniqueNames: true,
	})
}

func (o Options) condition(name string) (bool, error) {
	switch name {
	case "fakes", "kernel":
		return name == o.Driver, nil
	case "rough":
		return o.Rough || o.Crash, nil
	case "crash":
		return o.Crash, nil
	}
	return false, fmt.Errorf("unknown condition [%s]: use fakes, kernel, rough or crash", name)
}

// key finds the script among the values of its environment.
type key struct{}

func setUp(o Options, env *testscript.Env) error {
	d, err := o.Open(env.WorkDir)
	if err != nil {
		return err
	}
	o.Rough = o.Rough || o.Crash
	s := &script{opts: o, driver: d, comparator: NewComparator(d), work: env.WorkDir}
	env.Values[key{}] = s
	env.Defer(s.close)
	return nil
}

// commands binds the steps to the script they belong to.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	out := map[string]func(*testscript.TestScript, bool, []string){}
	for name, c := range steps {
		out[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			s := ts.Value(key{}).(*script)
			if len(args) < c.least || len(args) > c.most || neg && !c.negatable {
				ts.Fatalf("usage: %s", c.usage)
			}
			if err := c.run(s, call{ts: ts, neg: neg, args: args}); err != nil {
				ts.Logf("%s", s.tail())
				ts.Fatalf("%v", err)
			}
		}
	}
	return out
}
