package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
)

// The linker sets these for a build by make: -ldflags "-X main.version=v0.1.0 -X main.commit=... -X main.date=...".
// The date is the commit's, in RFC 3339.
var version, commit, date string

// buildDetails is what version -o json prints; manifests/schemas/version.schema.json describes it.
type buildDetails struct {
	Version string `json:"version"`
	// Commit and Date are empty when neither the linker nor the go command recorded them.
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`
	Go       string `json:"goVersion"`
	Platform string `json:"platform"`
}

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Long: `Print the version of the program, the commit that it was built from with the date of that commit,
the version of Go that compiled it, and the platform.`,
		Example: `  kube-ipvs version
  kube-ipvs version -o json | jq -r .commit`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return readBuild(debug.ReadBuildInfo()).print(cmd.OutOrStdout(), output)
		},
	}
	bindOutput(cmd, &output, "text", "json")
	return cmd
}

// print writes the details as text or as JSON.
func (b buildDetails) print(w io.Writer, output string) error {
	switch output {
	case "text":
		fmt.Fprintf(w, "kube-ipvs %s %s %s\n", b.Version, b.Go, b.Platform)
		if b.Commit != "" {
			fmt.Fprintf(w, "commit %s of %s\n", b.Commit, cmp.Or(b.Date, "an unknown date"))
		}
		return nil
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(b)
	}
	return fmt.Errorf("--output: %q is neither text nor json", output)
}

// readBuild returns what the linker was told, and for the rest what the go command recorded.
func readBuild(info *debug.BuildInfo, ok bool) buildDetails {
	b := buildDetails{Version: version, Commit: commit, Date: date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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

// buildVersion returns the release, or the pseudo-version or commit of a build without one.
func buildVersion() string {
	return readBuild(debug.ReadBuildInfo()).Version
}

// commitDate returns the date of the commit that the program was built from, and the Unix epoch when that is unknown.
func commitDate() time.Time {
	t, err := time.Parse(time.RFC3339, readBuild(debug.ReadBuildInfo()).Date)
	if err != nil {
		return time.Unix(0, 0).UTC()
	}
	return t.UTC()
}
