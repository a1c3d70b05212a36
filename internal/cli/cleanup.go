package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/daemon"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
)

const cleanupHelp = `Remove everything of kube-ipvs from this node and nothing else: addresses, virtual
servers, rules, sets and the device, in an order in which nothing is removed while
something refers to it, and rules from both backends of iptables. Sysctls get back
the values they had, but for net.ipv4.ip_forward and nf_conntrack_max, which other
programs may need by now: they are named and stay. No module is loaded for it, and
what this kernel does not have is passed over. What could not be removed is listed,
and the exit status is 1. It needs root, and that no agent runs in this network
namespace. Running it twice is fine.
Names are kube-proxy's: stop a kube-proxy before, for its chains, sets and tables
go, too.

Where a kube-proxy is to carry on, say its mode with --for:

  --for=ipvs      before it starts: all that it takes over stays and goes on carrying,
                  connections included; what only kube-ipvs has goes
  --for=iptables  after it has started: its rules stay, which carry new connections by
                  then; those that IPVS still carries are cut
  --for=nftables  after it has started: its tables stay. A kube-proxy that starts in
                  this mode removes IPVS and rules itself before it writes its own, and
                  so cuts for some seconds; this removes what it leaves`

func newCleanup() *cobra.Command {
	var successor string
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "remove everything of kube-ipvs from this node",
		Long:  cleanupHelp,
		Example: `  kube-ipvs cleanup
  kube-ipvs cleanup --run-dir /run/kube-ipvs
  kube-ipvs cleanup --for=ipvs             # and then kube-proxy --proxy-mode=ipvs`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(cmd)
			if err != nil {
				return err
			}
			to, err := ipvs.ParseSuccessor(successor)
			if err != nil {
				return fmt.Errorf("--for: %w", err)
			}
			return asAnswer(daemon.Cleanup(cmd.Context(), c, to, cmd.OutOrStdout()))
		},
	}
	cmd.Flags().StringVar(&successor, "for", "", "mode of the kube-proxy that carries on: ipvs, iptables or nftables (default: nobody does)")
	choose(cmd, "for", "ipvs", "iptables", "nftables")
	return cmd
}
