package vm

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestImageKey(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"ip": "one", "ipset": "two", "libxt_set.so": "three", "vmlinux": "four"})
	parts := func() rootfs {
		return rootfs{
			kernel:  Kernel{Release: "6.1", Image: filepath.Join(dir, "vmlinux"), Modules: dir},
			tools:   []string{filepath.Join(dir, "ip"), filepath.Join(dir, "ipset")},
			plugins: []string{filepath.Join(dir, "libxt_set.so")},
		}
	}
	before := parts().key()
	if again := parts().key(); again != before {
		t.Fatalf("key %s, then %s with nothing changed", before, again)
	}
	later := time.Now().Add(time.Hour)
	tests := []struct {
		name   string
		change func(*rootfs) error
	}{
		{"a tool is newer", func(r *rootfs) error { return os.Chtimes(r.tools[1], later, later) }},
		{"a tool is gone", func(r *rootfs) error { r.tools = r.tools[:1]; return nil }},
		{"a plug-in grew", func(r *rootfs) error { return os.WriteFile(r.plugins[0], []byte("longer than before"), 0o644) }},
		{"another kernel", func(r *rootfs) error { r.kernel.Release = "6.2"; return nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			changed := parts()
			before := changed.key()
			if err := tt.change(&changed); err != nil {
				t.Fatal(err)
			}
			if changed.key() == before {
				t.Errorf("key stayed %s", before)
			}
		})
	}
}

func TestStagePathFollowsLinks(t *testing.T) {
	host, stage := t.TempDir(), t.TempDir()
	writeFiles(t, host, map[string]string{"real/tool": "program", "conf/a": "A"})
	links := map[string]string{
		"bin/tool":     filepath.Join(host, "alternatives/tool"), // absolute, by way of the alternatives
		"alternatives": "other",
		"other/tool":   "../real/tool",
		"conf/gone":    "/no/such/file",
		"conf/b":       "a",
	}
	for name, target := range links {
		path := filepath.Join(host, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"other/tool", "conf"} {
		if err := stagePath(stage, filepath.Join(host, path)); err != nil {
			t.Fatal(err)
		}
	}
	staged := filepath.Join(stage, host)
	if text, err := os.ReadFile(filepath.Join(staged, "other/tool")); err != nil || string(text) != "program" {
		t.Errorf("staged link reads %q, %v", text, err)
	}
	if target, err := os.Readlink(filepath.Join(staged, "other/tool")); err != nil || target != "../real/tool" {
		t.Errorf("staged link leads to %q, %v", target, err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, names(t, filepath.Join(staged, "conf"))); diff != "" {
		t.Errorf("staged directory (-want +got):\n%s", diff)
	}
	if err := stagePath(stage, filepath.Join(host, "missing")); err == nil {
		t.Error("a missing file was staged")
	}
}

func TestBaseOfTheImage(t *testing.T) {
	stage := t.TempDir()
	if err := makeSkeleton(stage); err != nil {
		t.Fatal(err)
	}
	var buffer bytes.Buffer
	if err := writeBase(&buffer, stage); err != nil {
		t.Fatal(err)
	}
	entries := listArchive(t, buffer.Bytes())
	for _, want := range []string{
		"120777 lib usr/lib", "120777 sbin usr/sbin", "20600 dev/console 5:1", "20600 dev/null 1:3", "40755 usr/bin ",
		"100644 etc/modprobe.d/kube-ipvs.conf " + modprobeOptions, "100644 etc/fstab " + fstab,
	} {
		if !slices.Contains(entries, want) {
			t.Errorf("no entry %q in %q", want, entries)
		}
	}
	if last := entries[len(entries)-1]; last != "0 TRAILER!!! " {
		t.Errorf("last entry %q, want the trailer", last)
	}
}
