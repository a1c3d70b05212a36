package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// module writes a module of one package, with a test for each way in which a mutant is noticed.
func module(t *testing.T) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, "a", "a.go")
	for name, text := range map[string]string{
		"go.mod":      "module example.org/m\n\ngo 1.24\n",
		"a/a.go":      original,
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tt.Run(\"two\", func(t *testing.T) {\n\t\tif Sum(2) != 3 {\n\t\t\tt.Fail()\n\t\t}\n\t})\n}\n",
		"b/b.go":      "package b\n\nimport _ \"example.org/m/a\"\n",
		"b/b_test.go": "package b\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, file
}

const original = "package a\n\n// Sum adds up.\nfunc Sum(n int) (sum int) {\n\tfor ; n > 0; n-- {\n\t\tsum += n\n\t}\n\treturn sum\n}\n"

func TestGoTest(t *testing.T) {
	dir, file := module(t)
	tests, err := listTests(t.Context(), dir, "example.org/m")
	if err != nil || !slices.Equal(tests["a"], []string{"a", "b"}) {
		t.Errorf("the tests of %q contain the package a (%v)", tests["a"], err)
	}
	temp := t.TempDir()
	for name, c := range map[string]struct {
		old, new string
		want     testResult
		detail   string
	}{
		"passes":           {"sum += n", "sum += n + 0", testResult{}, ""},
		"fails":            {"n > 0", "n > 1", testResult{verdict: red, test: "TestSum/two"}, ""},
		"panics":           {"sum += n", "panic(n)", testResult{verdict: red, test: "TestSum/two"}, ""},
		"hangs":            {"n--", "n -= 0", testResult{verdict: hung, test: "TestSum"}, ""},
		"does not compile": {"sum += n", "sum += m", testResult{verdict: broken}, "undefined: m"},
	} {
		t.Run(name, func(t *testing.T) {
			trial := trial{root: dir, temp: temp}
			overlay, err := trial.overlay(mutant{File: "a/a.go", Old: c.old, New: c.new})
			if err != nil {
				t.Fatal(err)
			}
			got, err := goCommand{dir: dir, temp: temp, timeout: time.Second}.test(t.Context(), testRun{dir: "a", overlay: overlay})
			if err != nil || got.verdict != c.want.verdict || got.test != c.want.test || !strings.Contains(got.detail, c.detail) {
				t.Errorf("it found %+v (%v), want %+v with %q", got, err, c.want, c.detail)
			}
		})
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != original {
		t.Errorf("the file has %q (%v)", text, err)
	}
}

func TestArguments(t *testing.T) {
	g := goCommand{timeout: time.Minute, parallel: 1}
	got := strings.Join(g.arguments(testRun{dir: "a", overlay: "/o", only: "TestA", skip: []string{"TestB", "TestC"}}), " ")
	const want = "test -json -short -count=1 -failfast -vet=off -timeout=1m0s -p=1 -overlay=/o -run=^TestA$ -skip=^(TestB|TestC)$ ./a"
	if got != want {
		t.Errorf("go %s, want go %s", got, want)
	}
}
