package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// load returns the settings of the flags of a verb and of the file that they name, or all mistakes
// at once. The loader loads them again when the file changes.
func load(cmd *cobra.Command) (*config.Loader, config.Loaded, error) {
	l := config.NewLoader(cmd.Flags())
	host, err := os.Hostname()
	if err != nil && !cmd.Flags().Changed("hostname-override") {
		return l, config.Loaded{}, fmt.Errorf("read the name of this host: %w", err)
	}
	loaded, err := l.Load(host)
	if err != nil {
		return l, loaded, fmt.Errorf("bad settings:\n%w", err)
	}
	return l, loaded, nil
}

// check returns the settings for verbs other than the agent.
func check(cmd *cobra.Command) (config.Config, error) {
	_, loaded, err := load(cmd)
	printWarnings(cmd, loaded)
	return loaded.Config, err
}

func printWarnings(cmd *cobra.Command, loaded config.Loaded) {
	for _, w := range loaded.Warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
	}
}
