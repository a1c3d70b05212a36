package races_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/races"
)

func TestIn(t *testing.T) {
	const logged = `{"level":"info","msg":"ready"}` + "\n"
	const first, second = "WARNING: DATA RACE\nRead at 0x1 by goroutine 7:\n  main.a()\n", "WARNING: DATA RACE\nWrite at 0x2 by goroutine 9:\n"
	const rule = "==================\n"
	for name, c := range map[string]struct{ output, want string }{
		"nothing printed":      {"", ""},
		"a log":                {logged + logged, ""},
		"a report":             {logged + rule + first + rule + logged, first},
		"two":                  {rule + first + rule + logged + rule + second + rule, first + second},
		"a log line within":    {rule + first + logged + rule + logged, first + logged},
		"behind half a line":   {rule + `{"level":` + first + rule, `{"level":` + first},
		"killed while writing": {logged + rule + first, first},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, races.In(c.output)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// racer races with itself and is killed before it ends.
const racer = `package main

import ("os"; "sync"; "syscall")

var n int

func main() {
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { n++ })
	}
	all.Wait()
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}
`

// TestOfThisCompiler: the detector of the compiler that builds the agent writes what is looked for.
func TestOfThisCompiler(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "racer.go")
	if err := os.WriteFile(source, []byte(racer), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", dir+"/racer", source)
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("this machine cannot build with the race detector, which needs cgo and a C compiler: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), dir+"/racer").CombinedOutput()
	if found := races.In(string(out)); !strings.Contains(found, "main.main.func1") {
		t.Errorf("it ended with %v, and this was found:\n%s\nin\n%s", err, found, out)
	}
}
