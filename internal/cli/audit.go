package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

const auditHelp = `Have the running agent compare all of the kernel with what it should hold, now, and repair
what it finds. It does so by itself once a sync period (--ipvs-sync-period), and looks once a
second for large losses; kube-ipvs show status has the time and the cost of the latest.

Printed are the rows that were not as they should be, and those that are still not in place.`

func newAudit() *cobra.Command {
	o := viewOptions{interval: shortestInterval}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "have the running agent look for drift now, and repair it",
		Long:  auditHelp,
		Example: `  kube-ipvs audit
  kube-ipvs audit -o json | jq '.tables[] | {table, found, remaining}'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(cmd)
			if err != nil {
				return err
			}
			if err := o.valid("text", "json", "yaml"); err != nil {
				return err
			}
			r, err := inspect.NewClient(c.Socket()).Audit(cmd.Context())
			if err != nil {
				return err
			}
			p := page{out: cmd.OutOrStdout()}
			if o.output == "text" {
				err = inspect.WriteAudit(p.out, r)
			} else {
				err = p.encode(o.output, r)
			}
			return errors.Join(err, auditVerdict(r))
		},
	}
	bindOutput(cmd, &o.output, "text", "json", "yaml")
	return cmd
}

// auditVerdict returns exit status 1 if a row is not in place, or something could not be read. The
// output has the reason.
func auditVerdict(r agent.AuditReport) error {
	bad := r.Unread != ""
	for _, t := range r.Tables {
		bad = bad || t.Remaining > 0
	}
	if bad {
		return exitError{code: exitFound}
	}
	return nil
}
