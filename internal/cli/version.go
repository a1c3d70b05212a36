package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Long: `Print the version of the program, the commit from which it was built and the date of that commit,
the version of Go that compiled it, and the platform.`,
		Example: `  kube-ipvs version
  kube-ipvs version -o json | jq -r .commit`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersion(cmd.OutOrStdout(), output, version.Read())
		},
	}
	bindOutput(cmd, &output, "text", "json")
	return cmd
}

// printVersion writes the details as text or as JSON.
func printVersion(w io.Writer, output string, b version.Details) error {
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
