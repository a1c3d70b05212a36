package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

const auditHelp = `Make the running agent audit the kernel now: it reads all rows, compares them with the
desired rows, and repairs differences. The agent does so itself once in each sync period
(--ipvs-sync-period), and samples the kernel for large losses once a second. kube-ipvs show
status prints time and cost of the latest audit.

The output lists the rows that differed, and those that are not repaired yet.`

func newAudit() *cobra.Command {
	o := viewOptions{interval: shortestInterval}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "make the running agent audit the kernel now and repair drift",
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
