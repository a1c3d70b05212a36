package cli

import (
	"context"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/clusterui"
)

const uiHelp = `Serve a page that shows the cluster: nodes and Services as a grid, the nodes that differ, and for each
Service its frontends, backends, weights, connections and drains. It is refreshed while it is looked at.

The page is on a loopback address, behind a path that only this terminal shows. It reads what the other
verbs read, loads nothing from elsewhere, and can change nothing. It works without a mouse, with a screen
reader, and without JavaScript.`

// newClusterUI returns the verb that serves a page until a signal stops it.
func newClusterUI(f *clusterFlags) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use: "ui", Short: "show the cluster in a browser of this machine", Long: uiHelp, Args: noArguments,
		Example: "  kubectl ipvs ui\n  kubectl ipvs ui --listen 127.0.0.1:8080 --interval 30s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := f.open()
			if err != nil {
				return err
			}
			l, err := clusterui.Listen(cmd.Context(), at)
			if err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			var one sync.Mutex // a list of nodes is for one round
			s := clusterui.New(func(ctx context.Context, q cluster.Question) (cluster.Report, error) {
				one.Lock()
				defer one.Unlock()
				nodes, err := client.Nodes(ctx)
				if err != nil {
					return cluster.Report{}, err
				}
				return cluster.Run(ctx, nodes, client.Ask, q, cluster.Options{Parallel: f.parallel, Deadline: f.timeout}), nil
			}, f.interval)
			fmt.Fprintln(cmd.OutOrStdout(), s.URL(l))
			return s.Serve(cmd.Context(), l)
		},
	}
	cmd.Flags().StringVar(&at, "listen", "127.0.0.1:0", "loopback address and port of the page; port 0 is any that is free")
	return cmd
}
