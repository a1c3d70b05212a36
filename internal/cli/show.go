package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

const showHelp = `Show what the running agent knows, or what the kernel holds.

services, frontends, backends, pending, conflicts, draining, health and status ask the
agent over its socket, which only root may open; the agent goes on meanwhile. kernel reads
the kernel itself and works without an agent. Nothing is changed by either.

Tables are for people: -o wide has more columns. -o json and -o yaml are for programs;
manifests/schemas has a JSON schema of each. Colours are for terminals, and not where
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
		Long: `Print the state of the running agent between two passes of its loop: what it serves, the rows
that are wanted, in place and pending in each table, what failed last, and what it has written.`,
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
			short: "addresses, ports and number of backends of Services, and how they fare",
			long: `States: serving; noted (it lacks something it asks for, -o wide says what); no backends; conflict (another
Service has a frontend that it wants); skipped (nothing of it is served, -o wide says why). A Service of which nothing is to be served, such as a headless one,
is shown with --all, or where it is named.`,
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
			long: `Flags: local (the policy that governs it is Local), silent (no backend here, some elsewhere), affinity, one-packet,
dr and tunnel (backends answer themselves), ranges (only some clients may), detour (clients of this node go elsewhere),
slow-start, limit (connections of each backend); bound, or captured by port, with -o wide why. WINNER is the Service that
has it instead.`,
			example: `  kube-ipvs show frontends shop/cart
  kube-ipvs show frontends --vip 10.96.0.10
  kube-ipvs show frontends --backend 10.244.0.5        # who sends there?`,
			table: inspect.FrontendTable,
			open:  fromAgent((*inspect.Client).Frontends),
		}.command(),
		view[inspect.BackendRow]{
			use: "backends", takes: takesService, filters: byService | byVIP | byBackend,
			short: "where frontends send to, with weights",
			long:  `States: serving; closed (its weight is 0, so it gets no new connections); kept (it is passed over, and the connections it has go on).`,
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
			short: "rows of the kernel that are not in place, as one would type them",
			long: `States: waits (for its turn, or for rows that it needs); failed (it was tried, and rests until the next retry; the log
says why); orphan (found, and nobody asks for it; it stays while some input cannot be read). Of each table some hundreds
are shown at most.`,
			example: `  kube-ipvs show pending
  kube-ipvs show pending --watch --interval 200ms`,
			table: inspect.PendingTable,
			open:  fromAgent((*inspect.Client).Pending),
		}.command(),
		view[inspect.ConflictRow]{
			use: "conflicts", takes: takesService, filters: byService | byVIP,
			short: "frontends that two Services want, and which of them has it",
			example: `  kube-ipvs show conflicts
  kube-ipvs show conflicts shop/cart                   # as holder or loser`,
			table: inspect.ConflictTable,
			open:  fromAgent((*inspect.Client).Conflicts),
		}.command(),
		view[inspect.MovingRow]{
			use: "draining", takes: takesService, filters: byService | byVIP | byBackend,
			short: "destinations that drain, and those that climb to their weight (slow start)",
			example: `  kube-ipvs show draining --watch
  kube-ipvs show draining -n shop --sort-by left`,
			table: movingNow,
			open:  fromAgent((*inspect.Client).Draining),
		}.command(),
		view[inspect.HealthRow]{
			use:   "health",
			short: "the checks behind /healthz, /livez and /readyz, and why one fails",
			long: `PATHS answer 503 while the check fails. Over HTTP, where any client can ask, they give only its name.
It answers while the loop of the agent hangs, too.`,
			example: `  kube-ipvs show health
  kube-ipvs show health -o json | jq '.items[] | select(.ok | not)'`,
			table: inspect.HealthTable,
			open:  fromAgent((*inspect.Client).Health),
		}.command(),
	}
}
