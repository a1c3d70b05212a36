package version

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// built sets what the linker would set, for one test.
func built(t *testing.T, v, c, d string) {
	t.Helper()
	oldRelease, oldCommit, oldDate := release, commit, date
	t.Cleanup(func() { Set(oldRelease, oldCommit, oldDate) })
	Set(v, c, d)
}

// TestBuildDetails: the values given to Set outrank those that the go command recorded.
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
		want                  Details
	}{
		{"release", "v0.2.0", "aaaa", "2025-01-01T00:00:00Z", recorded("v0.0.1"), Details{Version: "v0.2.0", Commit: "aaaa", Date: "2025-01-01T00:00:00Z"}},
		{"go install", "", "", "", &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0"}}, Details{Version: "v0.2.0"}},
		{"go build", "", "", "", recorded("v0.0.0-2026+dirty"), Details{Version: "v0.0.0-2026+dirty", Commit: "fedcba9876543210", Date: "2026-01-02T03:04:05Z"}},
		{"go run", "", "", "", recorded("(devel)"), Details{Version: "fedcba987654", Commit: "fedcba9876543210", Date: "2026-01-02T03:04:05Z"}},
		{"nothing recorded", "", "", "", nil, Details{Version: "development"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			built(t, tt.version, tt.commit, tt.date)
			tt.want.Go, tt.want.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
			if diff := cmp.Diff(tt.want, read(tt.info, tt.info != nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestCommitDate(t *testing.T) {
	built(t, "v0.1.0", "aaaa", "2026-11-28T23:00:00Z")
	if got := CommitDate(); !got.Equal(time.Date(2026, 11, 28, 23, 0, 0, 0, time.UTC)) {
		t.Errorf("commit of %s", got)
	}
	built(t, "v0.1.0", "aaaa", "yesterday")
	if got := CommitDate(); !got.Equal(time.Unix(0, 0)) {
		t.Errorf("commit without a date: %s", got)
	}
}
