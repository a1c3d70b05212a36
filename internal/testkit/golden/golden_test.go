package golden_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
)

// recorder takes the place of a test and keeps what it was told.
type recorder struct{ errors, fatals []string }

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.fatals = append(r.fatals, fmt.Sprintf(format, args...))
}

// inFolder runs the rest of the test in an empty folder, with -update as said.
func inFolder(t *testing.T, update bool) {
	t.Helper()
	t.Chdir(t.TempDir())
	setUpdate(t, update)
}

func setUpdate(t *testing.T, on bool) {
	t.Helper()
	old := flag.Lookup("update").Value.String()
	if err := flag.Set("update", fmt.Sprint(on)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set("update", old) })
}

func TestMissingFileFails(t *testing.T) {
	inFolder(t, false)
	var r recorder
	golden.Check(&r, "none.txt", "anything")
	if len(r.fatals) != 1 || !strings.Contains(r.fatals[0], "-update") {
		t.Errorf("told %q, want one fatal that names -update", r.fatals)
	}
}

func TestUpdateThenCompare(t *testing.T) {
	inFolder(t, true)
	var r recorder
	golden.Check(&r, "deep/er.txt", "one\n")
	setUpdate(t, false)
	golden.Check(&r, "deep/er.txt", "one\n")
	if len(r.errors)+len(r.fatals) != 0 {
		t.Fatalf("the same text fails: %q %q", r.errors, r.fatals)
	}
	golden.Check(&r, "deep/er.txt", "two\n")
	if len(r.errors) != 1 || !strings.Contains(r.errors[0], "two") {
		t.Errorf("told %q, want one error that shows the difference", r.errors)
	}
}

func TestUnreadableFileFails(t *testing.T) {
	inFolder(t, false)
	if err := os.MkdirAll("testdata/folder.txt", 0o755); err != nil {
		t.Fatal(err)
	}
	var r recorder
	golden.Check(&r, "folder.txt", "")
	setUpdate(t, true)
	golden.Check(&r, "folder.txt", "")
	if len(r.fatals) != 2 {
		t.Errorf("told %q, want a fatal for the read and one for the write", r.fatals)
	}
}
