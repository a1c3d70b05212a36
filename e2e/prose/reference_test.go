package prose

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const pages = root + "/manifests/docs/"

// section is the text of a page between a heading and the next one.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, after, found := strings.Cut(read(t, page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %s", page, heading)
	}
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}

// firstCells are the words in code in the first column of the tables in a text.
func firstCells(text string) map[string]bool {
	out := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\|([^|]*)\|`).FindAllStringSubmatch(text, -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			out[m[1]] = true
		}
	}
	return out
}

func same(t *testing.T, what string, page, program map[string]bool) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(program)) {
		if !page[k] {
			t.Errorf("%s %q of the program is not on the page", what, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(page)) {
		if !program[k] {
			t.Errorf("%s %q is on the page and not in the program", what, k)
		}
	}
}

// The page of the log has each key of a log line, and no other.
func TestLogKeysAreOnThePage(t *testing.T) {
	keys := map[string]bool{"error": true} // zap.Error
	for _, dir := range []string{"cmd", "internal", "ipset"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (strings.HasSuffix(d.Name(), "test") || d.Name() == "testkit"):
				return filepath.SkipDir
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				logKeys(t, path, keys)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	same(t, "log key", firstCells(section(t, pages+"logs.md", "Keys")), keys)
}

// logKeys adds the keys of zap's fields in a file.
func logKeys(t *testing.T, path string, keys map[string]bool) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := fun.X.(*ast.Ident); !ok || x.Name != "zap" {
			return true
		}
		if l, ok := call.Args[0].(*ast.BasicLit); ok && l.Kind == token.STRING {
			if key, err := strconv.Unquote(l.Value); err == nil {
				keys[key] = true
			}
		}
		return true
	})
}

// The page of the log has each code of a note, and no other.
func TestNoteCodesAreOnThePage(t *testing.T) {
	codes := map[string]bool{}
	files, err := filepath.Glob(root + "/internal/model/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, m := range regexp.MustCompile(`NoteCode = "(\w+)"`).FindAllStringSubmatch(read(t, file), -1) {
			codes[m[1]] = true
		}
	}
	if len(codes) < 15 {
		t.Errorf("%d codes found, want at least 15", len(codes))
	}
	same(t, "code", firstCells(section(t, pages+"logs.md", "Codes of notes")), codes)
}

// Each alert links to its section of the page, and each section is of an alert.
func TestAlertsHaveARunbook(t *testing.T) {
	const url = "https://github.com/kube-ipvs/kube-ipvs/blob/main/manifests/docs/alerts.md#"
	sections, alerts := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(read(t, pages+"alerts.md"), -1) {
		sections[m[1]] = true
	}
	text := read(t, root+"/manifests/monitoring/kube-ipvs.rules.yaml")
	for rule := range strings.SplitSeq(text, "\n  - ") {
		if m := regexp.MustCompile(`^alert: (\w+)\n`).FindStringSubmatch(rule); m != nil {
			alerts[m[1]] = true
			if want := "\n      runbook_url: " + url + strings.ToLower(m[1]) + "\n"; !strings.Contains(rule, want) {
				t.Errorf("%s has no line%s", m[1], want)
			}
		}
	}
	if len(alerts) < 10 {
		t.Errorf("%d alerts found, want at least 10", len(alerts))
	}
	same(t, "alert", sections, alerts)
}

// The blocks of Go on the pages of the public packages, and of the control plane of tests, are bodies
// of their examples, which go test runs or compiles.
func TestGoBlocksAreExamples(t *testing.T) {
	for dir, least := range map[string]int{"ipset": 2, "scheduler": 2, "e2e/kube": 1} {
		examples := strings.ReplaceAll("\n"+read(t, filepath.Join(root, dir, "example_test.go")), "\n\t", "\n")
		blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(read(t, filepath.Join(root, dir, "README.md")), -1)
		if len(blocks) < least {
			t.Errorf("%s/README.md has %d blocks of Go, want at least %d", dir, len(blocks), least)
		}
		for _, b := range blocks {
			if !strings.Contains(examples, "() {\n"+b[1]+"}\n") {
				t.Errorf("%s/README.md: no example has the body\n%s", dir, b[1])
			}
		}
	}
}
