package prose

import (
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the numbers of testdata/accepted.txt")

const (
	root     = "../.."
	accepted = "testdata/accepted.txt"
)

// Findings get fewer: no file has more of them than testdata/accepted.txt says, and a number
// there that is too high has to be lowered.
func TestProse(t *testing.T) {
	found := check(t)
	old := readAccepted(t)
	if *update {
		writeAccepted(t, old, found)
		return
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		if n := len(found[path]); n > old[path] {
			t.Errorf("%s has %d findings, %d are accepted; the last ones:\n\t%s", path, n, old[path], strings.Join(tail(found[path], 5), "\n\t"))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(old)) {
		if n := len(found[path]); n < old[path] {
			t.Errorf("%s has %d findings, %d are accepted: go test ./e2e/prose -update", path, n, old[path])
		}
	}
}

// KUBE_IPVS_PROSE=PREFIX prints every finding in the files that begin so.
func TestFindingsOf(t *testing.T) {
	prefix, asked := os.LookupEnv("KUBE_IPVS_PROSE")
	if !asked {
		t.Skip("prints findings: KUBE_IPVS_PROSE=internal/plan")
	}
	found := check(t)
	for _, path := range slices.Sorted(maps.Keys(found)) {
		if strings.HasPrefix(path, prefix) {
			for _, f := range found[path] {
				fmt.Printf("%s:%s\n", path, f)
			}
		}
	}
}

// Each rule finds what it is for, and accepts the sentence that says the same plainly.
func TestRules(t *testing.T) {
	for _, tt := range []struct{ rule, bad, good string }{
		{"nobody", "Nobody reads it.", "No client reads it."},
		{"nobody", "It waits for somebody else.", "It waits for another process."},
		{"nobody", "whoever asks gets an answer", "each client gets an answer"},
		{"tells whether", "It tells whether a row exists.", "It reports whether a row exists."},
		{"headless", "What goes on is left.", "Connections are left."},
		{"headless", "The row is for who asks first.", "The row is for the first client."},
		{"headless", "Who asks in a start waits.", "Who waits during a start?"},
		{"dialect", "All is listed anew.", "All is listed again."},
		{"dialect", "Each room has a test.", "There is room for one more."},
		{"long", strings.Repeat("word\n", 31) + "end.", strings.Repeat("word\n", 29) + "end."},
		{"line", strings.Repeat("x", 101), strings.Repeat("x", 100)},
	} {
		names := func(text string) (out []string) {
			for _, f := range markdown(text) {
				rule, _, _ := strings.Cut(f.text, ":")
				out = append(out, rule)
			}
			return out
		}
		if got := names(tt.bad); !slices.Contains(got, tt.rule) {
			t.Errorf("%q: found %q, want %s", tt.bad, got, tt.rule)
		}
		if got := names(tt.good); len(got) != 0 {
			t.Errorf("%q: found %q, want nothing", tt.good, got)
		}
	}
}

// Comments and texts of programs are read, code and directives are not.
func TestGoSource(t *testing.T) {
	const source = `// Package p is plain.
package p

// F tells whether it is so.
//
//	nobody reads this picture
//
//nolint:all // nobody
func F() string { return "somebody else holds the lock" + "nobody" }
`
	var got []string
	for _, f := range goSource(t, "p.go", source) {
		got = append(got, f.String())
	}
	want := []string{"4: tells whether: F tells whether it is so", "9: nobody: somebody else holds the lock"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// finding is one place that breaks a rule.
type finding struct {
	line int
	text string
}

func (f finding) String() string { return strconv.Itoa(f.line) + ": " + f.text }

// check returns the findings of each file, by its path in the repository.
func check(t *testing.T) map[string][]finding {
	t.Helper()
	found := map[string][]finding{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "testdata", "node_modules"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		short, _ := filepath.Rel(root, path)
		var list []finding
		switch filepath.Ext(path) {
		case ".md":
			list = markdown(read(t, path))
		case ".go":
			if strings.HasPrefix(short, "e2e/prose/") {
				return nil // quotes what it finds
			}
			list = goSource(t, path, read(t, path))
		case ".sh", ".yaml", ".service":
			list = lines(read(t, path))
		}
		if len(list) > 0 {
			slices.SortStableFunc(list, func(a, b finding) int { return cmp.Compare(a.line, b.line) })
			found[filepath.ToSlash(short)] = list
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readAccepted(t *testing.T) map[string]int {
	t.Helper()
	old := map[string]int{}
	for line := range strings.Lines(read(t, accepted)) {
		var n int
		var path string
		if _, err := fmt.Sscanf(line, "%d %s\n", &n, &path); err != nil {
			t.Fatalf("%s: %q: %v", accepted, line, err)
		}
		old[path] = n
	}
	return old
}

// writeAccepted lowers numbers, and never raises one.
func writeAccepted(t *testing.T, old map[string]int, found map[string][]finding) {
	t.Helper()
	var out strings.Builder
	for _, path := range slices.Sorted(maps.Keys(old)) {
		if n := min(old[path], len(found[path])); n > 0 {
			fmt.Fprintf(&out, "%d %s\n", n, path)
		}
	}
	if err := os.WriteFile(accepted, []byte(out.String()), 0o644); err != nil { //nolint:gosec // as readable as it was
		t.Fatal(err)
	}
}

func tail(list []finding, n int) (out []string) {
	for _, f := range list[max(0, len(list)-n):] {
		out = append(out, f.String())
	}
	return out
}
