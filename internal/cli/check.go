package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
)

const checkHelp = `Try everything that the mode of --proxy-mode needs by using it: for ipvs the device,
the schedulers, the set types and iptables, for the families that the agent would serve.
Then look for what hurts Services all the same: sysctls, full tables, checksum offload
of VXLAN, reverse path filters, other owners of IPVS, a kube-proxy, network plug-ins
that serve Services themselves, rules of both kinds of iptables, ports that collide,
firewalls that drop packets to Services.

The first three lines at most say what is wrong, worst first; the table has every
answer, and the remedy below each that needs one. The exit status is 1 when the node
cannot carry Services. Where IPVS is missing the agent falls back to iptables mode, so
that is a warning, unless --on-missing-ipvs=fail says otherwise.

Modules of the kernel that this takes are loaded and stay loaded, as they do for
the agent; nothing else is left behind, and no setting is changed.`

func newCheck() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "say what this node lacks, and the remedy",
		Long:  checkHelp,
		Example: `  kube-ipvs check
  kube-ipvs check --ipvs-scheduler mh
  kube-ipvs check --on-missing-ipvs=fail   # must this node carry Services with IPVS?

  # what is wrong, for a program
  kube-ipvs check -o json | jq -r '.items[] | select(.state != "ok") | .name'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(cmd)
			if err != nil {
				return err
			}
			if output != "text" && output != "json" {
				return fmt.Errorf("--output: %q is not one of text, json", output)
			}
			verdicts := nodecheck.Run(cmd.Context(), c)
			unfit := nodecheck.Unfit(c, verdicts)
			return errors.Join(writeCheck(cmd.OutOrStdout(), output, verdicts, unfit == nil), asAnswer(unfit))
		},
	}
	bindOutput(cmd, &output, "text", "json")
	return cmd
}

func writeCheck(w io.Writer, output string, verdicts []tune.Verdict, fit bool) error {
	if output == "json" {
		return page{out: w}.encode(output, tune.NewReport(verdicts, fit))
	}
	if err := tune.WriteSummary(w, verdicts); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return tune.WriteVerdicts(w, verdicts)
}
