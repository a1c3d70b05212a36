package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

const showHelp = `Show what the running agent knows, or what the kernel holds.

services, frontends, backends, pending, conflicts, draining, health and status query the
agent over its socket, which only root may open; this does not pause the agent. kernel reads
the kernel directly and works without an agent. All of them only read.

The default output is a table; -o wide has more columns. -o json and -o yaml are for
programs; manifests/schemas has a JSON schema of each. Colours are used on terminals, unless
NO_COLOR is set.`

func newShow() *cobra.Command {
	show := &cobra.Command{
		Use:   "show",
		Short: "show what the running agent knows, or what the kernel holds",
		Long:  showHelp,
		Example: `  kube-ipvs show services -n shop
  kube-ipvs show backends cart --watch
  kube-ipvs show pending
  kube-ipvs show kernel servers --vip 10.96.0.10
  kube-ipvs show services -o json | jq '.items[] | select(.state != "serving")'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	show.AddCommand(serviceViews()...)
	show.AddCommand(changeViews()...)
	show.AddCommand(newShowStatus(), newShowKernel())
	return show
}

// newShowStatus returns the only view that is not a list.
func newShowStatus() *cobra.Command {
	var o viewOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "state of the loop, sizes of its tables, rows written",
		Long: `Print the state of the running agent: what it serves, the rows that are desired, actual and
pending in each table, the last error, and how many rows it has written.`,
		Example: `  kube-ipvs show status
  kube-ipvs show status -o json
  kube-ipvs show status --watch`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(cmd)
			if err != nil {
				return err
			}
			if err := o.valid("text", "json", "yaml"); err != nil {
				return err
			}
			client := inspect.NewClient(c.Socket())
			return o.show(cmd, func(ctx context.Context, p page) error {
				s, err := client.Status(ctx)
				if err != nil {
					return err
				}
				return printStatus(p, o.output, s)
			})
		},
	}
	cmd.Flags().SortFlags = false
	bindOutput(cmd, &o.output, "text", "json", "yaml")
	o.bindWatch(cmd.Flags())
	return cmd
}

func printStatus(p page, output string, s agent.Status) error {
	if output == "text" {
		return inspect.WriteStatus(p.out, s)
	}
	return p.encode(output, s)
}

// serviceViews returns the views of the Services of the running agent.
func serviceViews() []*cobra.Command {
	return []*cobra.Command{
		view[inspect.ServiceRow]{
			use: "services", takes: takesService, filters: byService | byVIP | byBackend,
			short: "addresses, ports, number of backends and state of Services",
			long: `States: serving; noted (not served exactly as it asks, -o wide says why); no backends; conflict (another
Service has a frontend that it wants); skipped (not served at all, -o wide says why). A Service that needs
no proxy, such as a headless one, is shown only with --all or if it is named.`,
			example: `  kube-ipvs show services -o wide
  kube-ipvs show services shop/cart
  kube-ipvs show services -n shop --sort-by -backends`,
			table: inspect.ServiceTable,
			hides: func(r inspect.ServiceRow) bool { return r.Intended },
			open:  fromAgent((*inspect.Client).Services),
		}.command(),
		view[inspect.FrontendRow]{
			use: "frontends", takes: takesService, filters: byService | byVIP | byBackend,
			short: "each address and port on which a Service answers, or wants to",
			long: `Flags: local (its traffic policy is Local), silent (no backend on this node, some on others), affinity, one-packet,
dr and tunnel (backends answer clients directly), ranges (only some clients are admitted), detour (packets from this
node are redirected), slow-start, limit (of connections of each backend); bound, or captured by port, with the reason
in -o wide. WINNER is the Service that has the frontend instead.`,
			example: `  kube-ipvs show frontends shop/cart
  kube-ipvs show frontends --vip 10.96.0.10
  kube-ipvs show frontends --backend 10.244.0.5        # which frontends send there?`,
			table: inspect.FrontendTable,
			open:  fromAgent((*inspect.Client).Frontends),
		}.command(),
		view[inspect.BackendRow]{
			use: "backends", takes: takesService, filters: byService | byVIP | byBackend,
			short: "backends of frontends, with weights",
			long:  `States: serving; closed (its weight is 0, so it gets no new connections); kept (it gets no new connections and keeps its existing ones).`,
			example: `  kube-ipvs show backends shop/cart
  kube-ipvs show backends --vip 10.96.0.10:80
  kube-ipvs show backends -n shop --sort-by weight`,
			table: inspect.BackendTable,
			open:  fromAgent((*inspect.Client).Backends),
		}.command(),
	}
}

// changeViews returns the views of rows and frontends that are not as desired.
func changeViews() []*cobra.Command {
	return []*cobra.Command{
		view[inspect.PendingRow]{
			use:   "pending",
			short: "rows that are not in the kernel yet, as commands",
			long: `States: waits (for the next pass, or for rows that it needs); failed (a write failed and will be tried again; the log
has the error); orphan (in the kernel, but of no Service; it stays while some input cannot be read). At most some
hundred rows of each table are shown.`,
			example: `  kube-ipvs show pending
  kube-ipvs show pending --watch --interval 200ms`,
			table: inspect.PendingTable,
			open:  fromAgent((*inspect.Client).Pending),
		}.command(),
		view[inspect.ConflictRow]{
			use: "conflicts", takes: takesService, filters: byService | byVIP,
			short: "frontends that two Services want, and the Service that has each",
			example: `  kube-ipvs show conflicts
  kube-ipvs show conflicts shop/cart                   # as the Service that has or lost a frontend`,
			table: inspect.ConflictTable,
			open:  fromAgent((*inspect.Client).Conflicts),
		}.command(),
		view[inspect.MovingRow]{
			use: "draining", takes: takesService, filters: byService | byVIP | byBackend,
			short: "draining destinations, and those in slow start",
			example: `  kube-ipvs show draining --watch
  kube-ipvs show draining -n shop --sort-by left`,
			table: movingNow,
			open:  fromAgent((*inspect.Client).Draining),
		}.command(),
		view[inspect.HealthRow]{
			use:   "health",
			short: "the health checks of /healthz, /livez and /readyz, and why one fails",
			long: `PATHS are the HTTP paths that answer 503 while the check fails. Over HTTP they give only the names of checks, because
any client can ask. This command also answers while the loop of the agent hangs.`,
			example: `  kube-ipvs show health
  kube-ipvs show health -o json | jq '.items[] | select(.ok | not)'`,
			table: inspect.HealthTable,
			open:  fromAgent((*inspect.Client).Health),
		}.command(),
	}
}
