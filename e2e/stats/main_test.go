package main

import (
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMeasures(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"internal/a/top.go":    "package a\n\ntype wide struct{ x, y int }\n\nfunc (wide) run() {\n\tlow()\n\tlow()\n\twide{}.deep()\n}\n",
		"internal/a/low.go":    "package a\n\nimport \"errors\"\n\nfunc low() { errors.run() }\n\nfunc (wide) deep() { wide{}.run() }\n",
		"internal/a/a_test.go": "package a\n",
		"internal/a/other.go":  "//go:build !linux\n\npackage a\n\nfunc (wide) elsewhere() {}\n",
		"e2e/x/x.go":           "package x\n\nfunc f() {}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := measure(root)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := s.write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"lines, e2e                             3",
		"lines, product                         21",
		"lines, tests                           1",
		"lines of a function: median, p90, max  1, 3, 3",
		"internal/a  4                    1       2 wide        2 wide",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no line %q in:\n%s", want, &b)
		}
	}
}

func TestSourcesThatCannotBeRead(t *testing.T) {
	if _, err := measure(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing directory is measured")
	}
}

// TestTreeKeepsItsLimits measures this repository.
func TestTreeKeepsItsLimits(t *testing.T) {
	s, err := measure("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range s.beyond() {
		t.Error(b)
	}
}

func TestBeyondTheLimits(t *testing.T) {
	s := stats{packages: []pkg{
		{path: "at", widest: "t", methods: mostMethods, largest: "t", fieldCount: mostFields, calls: 10, upward: 1},
		{path: "wide", widest: "t", methods: mostMethods + 1},
		{path: "large", largest: "t", fieldCount: mostFields + 1},
		{path: "upward", calls: 9, upward: 1, arrows: map[arrow]int{{"low.go", "top.go"}: 1}},
	}, change: path{packages: mostPackages, files: mostFiles, returns: mostReturns + 1}}
	want := []string{
		"wide: t has 41 methods, 40 at most",
		"large: t has 21 fields, 20 at most",
		"upward: 1 of 9 calls run upward, one in 10 at most: map[low.go -> top.go:1]",
		"path of one change: 10 packages, 5 files, 9 returns; 10, 5, 8 at most",
	}
	if got := s.beyond(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPathOfAChange(t *testing.T) {
	dirs := map[string][]*source{
		"source":           sources(t, map[string]string{"watch.go": "func take() { m.Set() }"}),
		modePackage:        sources(t, map[string]string{"mode.go": "type Mode struct{}; func (Mode) Set() { rows(); rows() }", "rows.go": "func rows() {}"}),
		modePackage + "/x": sources(t, map[string]string{"x.go": "func wait() {}"}),
	}
	for _, tt := range []struct {
		name, text string
		want       path
		broken     string
	}{
		{
			"there, back and there again", "source take\n  MODE Mode.Set\n    MODE rows\n    MODE rows\n    ~MODE/x wait\n",
			path{packages: 3, files: 3, returns: 3}, "",
		},
		{"a function that is gone", "source take\n  MODE Mode.Put\n", path{}, "has no Mode.Put"},
		{"a call that is gone", "source take\n  MODE rows\n", path{}, "does not call rows"},
		{"a stop below none", "  source take\n", path{}, "cannot read"},
		{"a stop without a function", "source\n", path{}, "cannot read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := measurePath(strings.ReplaceAll(tt.text, "MODE", modePackage), dirs)
			if tt.broken != "" {
				if got.broken == nil || !strings.Contains(got.broken.Error(), tt.broken) {
					t.Errorf("%v, want %q", got.broken, tt.broken)
				}
			} else if got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// sources parses the files of a package.
func sources(t *testing.T, texts map[string]string) (out []*source) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		f, err := parser.ParseFile(token.NewFileSet(), name, "package p; "+texts[name], parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, &source{name, f})
	}
	return out
}
