package top_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tables on the page of monitoring are what the program prints.
func TestPageShowsWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../manifests/docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"once.txt", "once-backends.txt"} {
		table, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		want := "\n" + strings.TrimSpace(string(table)) + "\n"
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not show %s:\n%s", name, want)
		}
	}
}
