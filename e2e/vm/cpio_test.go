package vm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listArchive reads newc archives the way the kernel does and returns a line per entry: mode, name, contents or device.
func listArchive(t *testing.T, data []byte) []string {
	t.Helper()
	var lines []string
	at := 0
	take := func(n int) string {
		if at+n > len(data) {
			t.Fatalf("archive ends at %d, wanted %d bytes at %d", len(data), n, at)
		}
		at += n
		return string(data[at-n : at])
	}
	for at < len(data) {
		if magic := take(6); magic != "070701" {
			t.Fatalf("magic %q at %d", magic, at-6)
		}
		var fields [13]int
		for i := range fields {
			value, err := strconv.ParseUint(take(8), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			fields[i] = int(value)
		}
		name := take(fields[11] - 1)
		take(1)
		at = align4(at)
		body := take(fields[6])
		at = align4(at)
		if fields[1]&modeChar == modeChar && fields[6] == 0 && fields[9] != 0 {
			body = fmt.Sprintf("%d:%d", fields[9], fields[10])
		}
		lines = append(lines, fmt.Sprintf("%o %s %s", fields[1], name, body))
	}
	return lines
}

func TestArchiveIsWhatTheKernelReads(t *testing.T) {
	var buffer bytes.Buffer
	a := newArchive(&buffer)
	a.parents("/run/bin/x")
	a.file("/run/bin/x", 0o755, []byte("12345"))
	a.link("lib", "usr/lib")
	a.char("dev/console", 5, 1)
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"40755 run ", "40755 run/bin ", "100755 run/bin/x 12345", "120777 lib usr/lib", "20600 dev/console 5:1", "0 TRAILER!!! ",
	}
	if diff := cmp.Diff(want, listArchive(t, buffer.Bytes())); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if buffer.Len()%4 != 0 {
		t.Errorf("length %d: a following archive would not be aligned", buffer.Len())
	}
}

func TestArchiveTree(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"etc/a": "A"})
	if err := os.Chmod(filepath.Join(dir, "etc/a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "etc/b")); err != nil {
		t.Fatal(err)
	}
	var buffer bytes.Buffer
	a := newArchive(&buffer)
	if err := a.tree(dir); err != nil {
		t.Fatal(err)
	}
	want := []string{"40755 etc ", "100600 etc/a A", "120777 etc/b a"}
	if diff := cmp.Diff(want, listArchive(t, buffer.Bytes())); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// fullDisk fails from the second write on.
type fullDisk struct{ writes int }

var errFull = errors.New("disk full")

func (d *fullDisk) Write(p []byte) (int, error) {
	d.writes++
	if d.writes > 1 {
		return 0, errFull
	}
	return len(p), nil
}

func TestArchiveRemembersTheFirstWriteError(t *testing.T) {
	disk := &fullDisk{}
	a := newArchive(disk)
	a.dir("x")
	a.file("x/y", 0o644, []byte("z"))
	if err := a.close(); !errors.Is(err, errFull) {
		t.Errorf("close() = %v, want %v", err, errFull)
	}
	if disk.writes != 2 {
		t.Errorf("%d writes, want none after the first error", disk.writes)
	}
}
