package main

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// built sets what the linker would, for one test.
func built(t *testing.T, v, c, d string) {
	t.Helper()
	oldVersion, oldCommit, oldDate := version, commit, date
	t.Cleanup(func() { version, commit, date = oldVersion, oldCommit, oldDate })
	version, commit, date = v, c, d
}

func TestVersionOfRelease(t *testing.T) {
	built(t, "v0.1.0", "0123456789abcdef0123456789abcdef01234567", "2026-11-28T23:00:00Z")
	want := "kube-ipvs v0.1.0 " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n" +
		"commit 0123456789abcdef0123456789abcdef01234567 of 2026-11-28T23:00:00Z\n"
	if diff := cmp.Diff(want, execute(t, "version")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	text := execute(t, "version", "-o", "json")
	fits(t, "version", text)
	var got buildDetails
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "v0.1.0" || got.Commit != commit || got.Date != date {
		t.Errorf("got %+v", got)
	}
	if _, err := try("version", "-o", "yaml"); err == nil || !strings.Contains(err.Error(), "neither text nor json") {
		t.Errorf("-o yaml: error %v", err)
	}
	if got := commitDate(); !got.Equal(time.Date(2026, 11, 28, 23, 0, 0, 0, time.UTC)) {
		t.Errorf("the manual pages are of %s", got)
	}
}

// What the linker was told outranks what the go command recorded.
func TestBuildDetails(t *testing.T) {
	recorded := func(main string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: main}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "fedcba9876543210"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		}}
	}
	tests := []struct {
		name                  string
		version, commit, date string
		info                  *debug.BuildInfo
		want                  buildDetails
	}{
		{"release", "v0.2.0", "aaaa", "2025-01-01T00:00:00Z", recorded("v0.0.1"), buildDetails{Version: "v0.2.0", Commit: "aaaa", Date: "2025-01-01T00:00:00Z"}},
		{"go install", "", "", "", &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0"}}, buildDetails{Version: "v0.2.0"}},
		{"go build", "", "", "", recorded("v0.0.0-2026+dirty"), buildDetails{Version: "v0.0.0-2026+dirty", Commit: "fedcba9876543210", Date: "2026-01-02T03:04:05Z"}},
		{"go run", "", "", "", recorded("(devel)"), buildDetails{Version: "fedcba987654", Commit: "fedcba9876543210", Date: "2026-01-02T03:04:05Z"}},
		{"nothing recorded", "", "", "", nil, buildDetails{Version: "development"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			built(t, tt.version, tt.commit, tt.date)
			tt.want.Go, tt.want.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
			if diff := cmp.Diff(tt.want, readBuild(tt.info, tt.info != nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
