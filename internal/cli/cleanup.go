package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/daemon"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
)

const cleanupHelp = `Remove everything that kube-ipvs wrote on this node, and nothing else: addresses, virtual
servers, rules of both iptables backends, sets and the device. No object is removed while
another one refers to it. Sysctls are set back to their previous values, except
net.ipv4.ip_forward and nf_conntrack_max, which other programs may need: these are listed
and stay. No kernel module is loaded, and subsystems that this kernel lacks are skipped.
Objects that could not be removed are listed, and the exit status is 1. The command needs
root, and no agent may run in this network namespace. Running it twice is safe.
kube-ipvs uses the names of kube-proxy. Stop a kube-proxy first, because its chains, sets
and tables are removed, too.

If a kube-proxy will serve after kube-ipvs, give its mode with --for:

  --for=ipvs      run before kube-proxy starts: everything that it will take over stays and
                  keeps forwarding, connections included; the rest is removed
  --for=iptables  run after kube-proxy has started: its rules stay and serve new
                  connections; connections that IPVS still forwards are cut
  --for=nftables  run after kube-proxy has started: its tables stay. A kube-proxy that
                  starts in this mode removes IPVS and rules before it writes its own, which
                  interrupts traffic for some seconds; cleanup removes what remains`

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
			to, err := migrate.ParseTarget(successor)
			if err != nil {
				return fmt.Errorf("--for: %w", err)
			}
			return asAnswer(daemon.Cleanup(cmd.Context(), c, to, cmd.OutOrStdout()))
		},
	}
	cmd.Flags().StringVar(&successor, "for", "", "mode of the kube-proxy that will serve afterwards: ipvs, iptables or nftables (default: none)")
	choose(cmd, "for", "ipvs", "iptables", "nftables")
	return cmd
}
