package prose

import (
	"cmp"
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

const root = "../.."

// quotations are the findings that stay, because the words are not ours to choose. Each is the path
// of a file, a part of the sentence, and the reason.
var quotations = []struct{ path, text, reason string }{
	{"e2e/test-vm.sh", "rooms | promotion)", "the script translates the name that a stage had in an earlier release"},
	{"internal/dataplane/ipvs/sets/names.go", "that nobody dials", "the comment of a rule that is in kernels; another text would replace the rule on each node"},
}

// No sentence breaks a rule, but for quotations. A quotation that is gone is no longer listed.
func TestProse(t *testing.T) {
	found := check(t)
	used := make([]bool, len(quotations))
	for _, path := range slices.Sorted(maps.Keys(found)) {
		for _, f := range found[path] {
			i := slices.IndexFunc(quotations, func(q struct{ path, text, reason string }) bool {
				return q.path == path && strings.Contains(f.text, q.text)
			})
			if i < 0 {
				t.Errorf("%s:%s", path, f)
				continue
			}
			used[i] = true
		}
	}
	for i, q := range quotations {
		if !used[i] {
			t.Errorf("%s: %q is not found any more: remove it from the quotations", q.path, q.text)
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
		{"headless", "The lock is free; who waits gets it.", "The lock is free; a waiting process gets it."},
		{"headless", "It never fails: what cannot be read is left out.", "It never fails: unreadable fields are left out."},
		{"says", "ErrBusy says that the lock is held.", "ErrBusy means that the lock is held."},
		{"says", "Reason says why it failed.", "The error says why it failed."},
		{"data", "IPVS remembers a connection.", "IPVS keeps a connection."},
		{"data", "remove forgets a set.", "remove deletes a set."},
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
	walk(t, "", func(path, text string) {
		var list []finding
		switch filepath.Ext(path) {
		case ".md":
			list = markdown(text)
		case ".go":
			if strings.HasPrefix(path, "e2e/prose/") {
				return // quotes what it finds
			}
			list = goSource(t, path, text)
		case ".sh", ".yaml", ".service":
			list = lines(text)
		}
		if len(list) > 0 {
			slices.SortStableFunc(list, func(a, b finding) int { return cmp.Compare(a.line, b.line) })
			found[path] = list
		}
	})
	return found
}

// walk visits the files of the repository whose names have an ending, without test data.
func walk(t *testing.T, ending string, visit func(path, text string)) {
	t.Helper()
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
		short, err := filepath.Rel(root, path)
		if err == nil && strings.HasSuffix(path, ending) && slices.Contains([]string{".md", ".go", ".sh", ".yaml", ".service"}, filepath.Ext(path)) {
			visit(filepath.ToSlash(short), read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
