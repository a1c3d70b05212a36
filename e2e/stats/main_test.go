package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMeasures(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"internal/a/top.go":    "package a\n\ntype wide struct{ x, y int }\n\nfunc (wide) run() {\n\tlow()\n\tlow()\n\twide{}.deep()\n}\n",
		"internal/a/low.go":    "package a\n\nfunc low() {}\n\nfunc (wide) deep() { wide{}.run() }\n",
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
		"lines, product                         19",
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
