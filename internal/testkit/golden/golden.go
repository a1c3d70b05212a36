// Package golden compares what a test got with a file in its testdata folder. Run the test with
// -update to rewrite the files, then review the difference in version control.
package golden

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// TB is the part of testing.TB that Check needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Check compares got with testdata/name and reports the difference as
// -want +got. With -update it writes the file instead. A file that is missing
// is an error: it would make a test that cannot fail.
func Check(t TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if *update {
		write(t, path, got)
		return
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("golden file %s is missing: run this test with -update to write it", path)
		return
	}
	if err != nil {
		t.Fatalf("read golden file: %v", err)
		return
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), run with -update if this is right:\n%s", path, diff)
	}
}

func write(t TB, path, got string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatalf("make the folder of a golden file: %v", err)
		return
	}
	if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
		t.Fatalf("write golden file: %v", err)
	}
}
