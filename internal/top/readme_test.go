package top_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tables in the README are what the program prints.
func TestReadmeShowsWhatIsPrinted(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"once.txt", "once-backends.txt"} {
		table, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		want := "    " + strings.ReplaceAll(strings.TrimSpace(string(table)), "\n", "\n    ") + "\n"
		if !strings.Contains(string(readme), want) {
			t.Errorf("the README does not show %s:\n%s", name, want)
		}
	}
}
