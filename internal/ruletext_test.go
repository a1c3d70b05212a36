package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// ruleWords are words that only the text of a rule of iptables has.
	ruleWords = regexp.MustCompile(`(?:^|[\s"])(?:-[jgm] [A-Za-z%]|-[jg] $|--(?:match-set|ctstate|dport|src-type|dst-type|set-xmark|reject-with|to-destination|to-ports|comment)\b)`)
	// ruleReaders take the text of a rule apart.
	ruleReaders = []string{"Split", "Words", "Targets", "Canonical"}
	// ruleTexts may know that text: the tools themselves, the two files that translate it, and
	// the package that judges filters of other programs and tells an operator what to type.
	ruleTexts = []string{"../internal/kernel/rules", "../internal/dataplane/netfilter/render.go", "../internal/dataplane/netfilter/parse.go", "../internal/firewall", "../internal/testkit"}
)

// TestOnePackageKnowsTheTextOfRules: a mode, a verb or a metric that asks what a rule does has a
// value to ask. A second place that reads the text would have to change with every renderer.
func TestOnePackageKnowsTheTextOfRules(t *testing.T) {
	files := 0
	for _, dir := range []string{"../internal", "../cmd"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			allowed := slices.ContainsFunc(ruleTexts, func(p string) bool { return strings.HasPrefix(path, p) })
			if err != nil || allowed || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, found := range ruleText(file) {
				t.Errorf("%s knows the text of rules: %s", path, found)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("%d files were looked at", files)
	}
}

// ruleText lists what of a file writes or reads the text of rules.
func ruleText(file *ast.File) []string {
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING && ruleWords.MatchString(strings.Trim(n.Value, "`\"")) {
				found = append(found, n.Value)
			}
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && of.Name == "rules" && slices.Contains(ruleReaders, n.Sel.Name) {
				found = append(found, "rules."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}

func TestTextOfRulesIsFound(t *testing.T) {
	for _, source := range []string{
		`"-m set --match-set " + name`, "`x -j DROP`", `" -j " + chain`, `strings.Contains(rule, "--comment")`, "rules.Words(rule)", `"--ctstate NEW"`, `"-m %s"`,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nvar _ = "+source, 0)
		if err != nil || len(ruleText(file)) == 0 {
			t.Errorf("%s passes: %v", source, err)
		}
	}
}
