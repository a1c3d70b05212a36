package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"time"
)

// release, commit and date are the arguments of Set.
var release, commit, date string

// Set records what the linker wrote into package main: the release, the commit that it was built
// from, and the date of that commit in RFC 3339. main calls it first.
func Set(r, c, d string) { release, commit, date = r, c, d }

// Details are the output of version -o json; manifests/schemas/version.schema.json describes them.
type Details struct {
	Version string `json:"version"`
	// Commit and Date are empty when neither the linker nor the go command recorded them.
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`
	Go       string `json:"goVersion"`
	Platform string `json:"platform"`
}

// Read returns the details of this program.
func Read() Details { return read(debug.ReadBuildInfo()) }

// read returns the arguments of Set, and for the rest the values that the go command recorded.
func read(info *debug.BuildInfo, ok bool) Details {
	b := Details{Version: release, Commit: commit, Date: date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = cmp.Or(b.Commit, s.Value)
			case "vcs.time":
				b.Date = cmp.Or(b.Date, s.Value)
			}
		}
		if info.Main.Version != "(devel)" {
			b.Version = cmp.Or(b.Version, info.Main.Version)
		}
	}
	b.Version = cmp.Or(b.Version, b.Commit[:min(12, len(b.Commit))], "development")
	return b
}

// String returns the release, or the pseudo-version or commit of a build without one.
func String() string { return Read().Version }

// CommitDate returns the date of the commit that the program was built from, and the Unix epoch when that is unknown.
func CommitDate() time.Time {
	t, err := time.Parse(time.RFC3339, Read().Date)
	if err != nil {
		return time.Unix(0, 0).UTC()
	}
	return t.UTC()
}
