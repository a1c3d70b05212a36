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

// named are names that one file has, and others take from there: of chains, and of the sets of
// IPv6. The firewall package judges rules of any program by their names.
var named = []struct {
	what *regexp.Regexp
	file string
}{
	{
		regexp.MustCompile(`^"KUBE-(?:SERVICES|POSTROUTING|MARK-MASQ|FORWARD|PROXY-.*|NODE-PORT|NODEPORTS|EXTERNAL-SERVICES|SOURCE-.*|IPVS-.*FILTER|IPVS-ACCEPT|DETOUR-.*|DIRECT|DIRECT-MSS|SV[CL]-|SEP-|FW-|EXT-|XLB-)"$`),
		"../internal/dataplane/netfilter/owned.go",
	},
	{regexp.MustCompile(`"(?:KUBE-)?6-"`), "../internal/dataplane/ipvs/ownership/ownership.go"},
}

// TestNamesHaveOneHome: whose a chain is, and what a set is for, is decided in one file each.
func TestNamesHaveOneHome(t *testing.T) {
	found := map[string]bool{}
	parseAll(t, []string{"../internal/firewall", "../internal/testkit", "../internal/kernel/rules/rulestest"}, func(path string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			for _, name := range named {
				if !ok || lit.Kind != token.STRING || !name.what.MatchString(lit.Value) {
					continue
				}
				if found[name.file] = true; path != name.file && !setNames[lit.Value] {
					t.Errorf("%s has %s, which is for %s to say", path, lit.Value, name.file)
				}
			}
			return true
		})
	})
	if len(found) != len(named) {
		t.Errorf("names were found in %v alone", found)
	}
}

// setNames are sets whose names look like those of chains.
var setNames = map[string]bool{`"KUBE-DETOUR-END"`: true}

// TestOnePackageKnowsTheTextOfRules: a mode, a verb or a metric that asks what a rule does has a
// value to ask. A second place that reads the text would have to change with every renderer.
func TestOnePackageKnowsTheTextOfRules(t *testing.T) {
	parseAll(t, ruleTexts, func(path string, file *ast.File) {
		for _, found := range ruleText(file) {
			t.Errorf("%s knows the text of rules: %s", path, found)
		}
	})
}

// parseAll calls f with each source file of the program, but for those below some paths.
func parseAll(t *testing.T, without []string, f func(path string, file *ast.File)) {
	t.Helper()
	files := 0
	for _, dir := range []string{"../internal", "../cmd"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			left := slices.ContainsFunc(without, func(p string) bool { return strings.HasPrefix(path, p) })
			if err != nil || left || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				f(path, file)
			}
			return err
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
