package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
)

const checkHelp = `Try everything that the mode of --proxy-mode needs by using it: for ipvs the device,
the schedulers, the set types and iptables, for the IP families that the agent would serve.
Then check for other problems: sysctls, full tables, checksum offload of VXLAN, reverse
path filters, other programs that use IPVS, a running kube-proxy, network plug-ins that
serve Services themselves, rules in both iptables backends, colliding ports, and firewalls
that drop packets to Services.

The first lines, three at most, name the problems, worst first. The table below has the
result of each check, with a remedy where one is needed. The exit status is 1 if the node
cannot serve. Without IPVS the agent falls back to iptables mode, so a kernel without IPVS
is a warning, unless --on-missing-ipvs=fail is set.

Kernel modules that a check needs are loaded and stay loaded, as they do for the agent.
Nothing else is left behind, and no setting is changed.`

func newCheck() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "check what this node lacks, and print the remedies",
		Long:  checkHelp,
		Example: `  kube-ipvs check
  kube-ipvs check --ipvs-scheduler mh
  kube-ipvs check --on-missing-ipvs=fail   # does this node support ipvs mode?

  # names of failed checks, for a program
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

func writeCheck(w io.Writer, output string, verdicts []diagnosis.Verdict, fit bool) error {
	if output == "json" {
		return page{out: w}.encode(output, diagnosis.NewReport(verdicts, fit))
	}
	if err := diagnosis.WriteSummary(w, verdicts); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return diagnosis.Write(w, verdicts)
}
