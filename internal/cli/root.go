package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/daemon"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

const rootHelp = `kube-ipvs serves Kubernetes Services on this node with the kernel's IP Virtual
Server. Without a verb it runs until SIGTERM stops it; the rows that it wrote
stay in the kernel and keep forwarding traffic.`

const rootExamples = `  # serve the Services of a directory of manifests, as node worker-1
  kube-ipvs --source-dir /etc/kube-ipvs/manifests --hostname-override worker-1

  # weighted least connections, JSON logs, pods in 10.244.0.0/16
  kube-ipvs --source-dir . --ipvs-scheduler wlc --cluster-cidr 10.244.0.0/16 --logging-format json

  # with the configuration and the arguments of a kube-proxy
  kube-ipvs --config /var/lib/kube-proxy/config.conf --hostname-override worker-1

  # which rows would the kernel have? needs neither root nor IPVS
  kube-ipvs plan --source-dir . --hostname-override worker-1`

// Execute runs the program with the arguments of this process, and returns its exit status.
func Execute(ctx context.Context) (status int) {
	stderr := printable.NewWriter(os.Stderr)
	root := calledAs(os.Args)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return report(cmd, err, stderr)
}

// NewRoot returns the command with all verbs. Without a verb it runs the agent.
func NewRoot() *cobra.Command {
	defaults := config.Defaults()
	root := &cobra.Command{
		Use:           "kube-ipvs",
		Short:         "serve Kubernetes Services with IPVS",
		Long:          rootHelp,
		Example:       rootExamples,
		Args:          noArguments,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          runRoot,
	}
	config.Bind(root.PersistentFlags(), &defaults)
	root.Flags().SortFlags = false
	root.SetGlobalNormalizationFunc(config.Dashes)
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true // ours has examples
	root.AddCommand(newPlan(), newShow(), newExplain(), newDiff(), newAudit(), newTop(), newTrace(), newCheck(), newCleanup(), newCluster(), newVersion(), newCompletion(), newMan())
	completeValues(root)
	return root
}

// runRoot runs the agent, or does what a flag of kube-proxy asks for instead.
func runRoot(cmd *cobra.Command, _ []string) error {
	loader, loaded, err := load(cmd)
	if err != nil {
		printWarnings(cmd, loaded)
		return err
	}
	switch c := loaded.Config; {
	case c.WriteConfigTo != "":
		printWarnings(cmd, loaded)
		return writeConfig(c)
	case c.Cleanup:
		printWarnings(cmd, loaded)
		return daemon.Cleanup(cmd.Context(), c, migrate.TargetNone, cmd.OutOrStdout())
	}
	return daemon.Run(cmd.Context(), cmd.Flags(), loader, loaded)
}

// writeConfig writes the settings in force as a file for --config.
func writeConfig(c config.Config) error {
	text, err := c.YAML()
	if err == nil {
		err = os.WriteFile(c.WriteConfigTo, text, 0o644) //nolint:gosec // holds no secrets, and kube-proxy's is as readable
	}
	if err != nil {
		return fmt.Errorf("--write-config-to: %w", err)
	}
	return nil
}
