package cli

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

func TestVersionOfRelease(t *testing.T) {
	const commit, date = "0123456789abcdef0123456789abcdef01234567", "2026-11-28T23:00:00Z"
	t.Cleanup(func() { version.Set("", "", "") })
	version.Set("v0.1.0", commit, date)
	want := "kube-ipvs v0.1.0 " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n" +
		"commit 0123456789abcdef0123456789abcdef01234567 of 2026-11-28T23:00:00Z\n"
	if diff := cmp.Diff(want, execute(t, "version")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	text := execute(t, "version", "-o", "json")
	fits(t, "version", text)
	var got version.Details
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "v0.1.0" || got.Commit != commit || got.Date != date {
		t.Errorf("got %+v", got)
	}
	if _, err := try("version", "-o", "yaml"); err == nil || !strings.Contains(err.Error(), "neither text nor json") {
		t.Errorf("-o yaml: error %v", err)
	}
}
