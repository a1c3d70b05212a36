package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCacheDir(t *testing.T) {
	base := t.TempDir()
	tests := []struct {
		name, explicit, xdg, want string
	}{
		{name: "explicit", explicit: filepath.Join(base, "mine"), xdg: base, want: filepath.Join(base, "mine")},
		{name: "user's cache", xdg: base, want: filepath.Join(base, "kube-ipvs")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBE_IPVS_CACHE", tt.explicit)
			t.Setenv("XDG_CACHE_HOME", tt.xdg)
			got, err := CacheDir()
			if err != nil || got != tt.want {
				t.Fatalf("CacheDir() = %q, %v, want %q", got, err, tt.want)
			}
			if !exists(got) {
				t.Error("the directory was not made")
			}
		})
	}
}

func TestCacheDirInsideTheSourceTreeIsRefused(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBE_IPVS_CACHE", filepath.Join(here, "testdata", "cache"))
	if dir, err := CacheDir(); err == nil || !strings.Contains(err.Error(), "source tree") {
		t.Errorf("CacheDir() = %q, %v, want a refusal", dir, err)
	}
	if exists(filepath.Join(here, "testdata", "cache")) {
		t.Error("the refused directory was made all the same")
	}
}

func TestPublishShowsAllOrNothing(t *testing.T) {
	target := filepath.Join(t.TempDir(), "image")
	wrecked := errors.New("wrecked")
	err := publish(target, func(tmp string) error {
		if err := os.WriteFile(tmp, []byte("half"), 0o644); err != nil {
			return err
		}
		if exists(target) {
			t.Error("the target is there before it is complete")
		}
		return wrecked
	})
	if !errors.Is(err, wrecked) {
		t.Fatalf("publish error = %v, want %v", err, wrecked)
	}
	if diff := cmp.Diff([]string(nil), names(t, filepath.Dir(target))); diff != "" {
		t.Errorf("left behind after a failure (-want +got):\n%s", diff)
	}

	if err := publish(target, func(tmp string) error { return os.WriteFile(tmp, []byte("whole"), 0o644) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"image"}, names(t, filepath.Dir(target))); diff != "" {
		t.Errorf("directory after success (-want +got):\n%s", diff)
	}
}

func TestSweepRemovesTheUnfinishedOnly(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{unfinished + "123/kernel/boot/vmlinuz": "half", "rootfs-1.cpio": "whole"})
	if err := sweep(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"rootfs-1.cpio"}, names(t, dir)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestPruneKeepsTheLastUsed(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	want := []string{"other"}
	for i := range kept + 2 {
		name := fmt.Sprintf("x-%02d", i)
		if i < kept {
			want = append(want, name)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		used := now.Add(-time.Duration(i) * time.Hour)
		if err := os.Chtimes(path, used, used); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := prune(dir, "x-*"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, names(t, dir)); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

// names lists a directory, sorted.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

// writeFiles makes files below dir from a map of relative path to text.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSweepLeavesRunningGuestsAlone has a guest's directory in the cache while another run begins, and after the guest has ended.
func TestSweepLeavesRunningGuestsAlone(t *testing.T) {
	cache := t.TempDir()
	dir, release, err := ownDir(cache, "uml-")
	if err != nil {
		t.Fatal(err)
	}
	if err := sweep(cache); err != nil || !exists(dir) {
		t.Fatalf("the directory of a guest that runs was removed (%v)", err)
	}
	release()
	if err := sweep(cache); err != nil || exists(dir) {
		t.Fatalf("the directory of a guest that was killed is still there (%v)", err)
	}
}
