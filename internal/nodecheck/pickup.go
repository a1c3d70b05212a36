package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// pickupCheck returns the check of the sysctls by which connections of other nodes continue here.
// list asks the running agent for its frontends; without an agent nothing is known of Services.
func pickupCheck(files procfs.Files, list func(context.Context) ([]inspect.FrontendRow, error)) diagnosis.Check {
	return diagnosis.Check{Name: "connections of other nodes", Fix: "run as root, with the host's /proc mounted", Run: func(ctx context.Context) error {
		frontends, err := list(ctx)
		if err != nil {
			return diagnosis.Note("unknown: no agent answers")
		}
		wanted := map[string]int{}
		for _, f := range frontends {
			if pickedUp(f) {
				wanted[f.Protocol]++
			}
		}
		tcp, sctp := wanted[model.TCP.String()], wanted[model.SCTP.String()]
		var wrong, fix []string
		for _, s := range sysctl.PickupSysctls(tcp > 0, sctp > 0) {
			name, err := procfs.SysctlPath(s.Key)
			if err != nil {
				return err
			}
			have, err := files.Get(ctx, name)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				wrong = append(wrong, s.Key+" is not in this kernel")
			case err != nil:
				return fmt.Errorf("read sysctl %s: %w", s.Key, err)
			case have != s.Value:
				wrong, fix = append(wrong, fmt.Sprintf("%s=%s must be %s", s.Key, have, s.Value)), append(fix, s.String())
			}
		}
		switch {
		case len(wrong) > 0:
			err := diagnosis.Warning(fmt.Errorf("%d addresses and ports have mh with dr or tunnel, but connections that another node began are reset: %s", tcp+sctp, strings.Join(wrong, ", ")))
			if len(fix) == 0 {
				return diagnosis.Remedied(err, "load ip_vs, or use a kernel that has it")
			}
			return diagnosis.Remedied(err, sysctl.OnHost(fix))
		case tcp+sctp > 0:
			return diagnosis.Note("they continue here at %d addresses and ports (mh with dr or tunnel)", tcp+sctp)
		}
		return diagnosis.Note("no Service asks for it (mh with forward dr or tunnel)")
	}}
}

// pickedUp reports whether a frontend in force has connections that are picked up.
func pickedUp(f inspect.FrontendRow) bool {
	name, _, _ := strings.Cut(f.Scheduler, " ")
	return name == "mh" && f.Winner == "" &&
		(slices.Contains(f.Flags, model.ForwardDirect.String()) || slices.Contains(f.Flags, model.ForwardTunnel.String()))
}
