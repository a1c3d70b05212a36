package host

import (
	"context"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
)

// IdleCheck asks whether IPVS keeps idle TCP connections for long enough. tcp tells
// for how long it does, or will on a node of these limits.
func (h *Node) IdleCheck(tcp func(context.Context, sysctl.IdleLimits) (time.Duration, error)) diagnosis.Check {
	return diagnosis.Check{Name: "ipvs idle times", Fix: sysctl.IdleFix, Run: func(ctx context.Context) error {
		limits, err := h.sysctls.IdleLimits(ctx)
		if err != nil {
			return err
		}
		now, err := tcp(ctx, limits)
		if err != nil {
			return err
		}
		return diagnosis.Warning(limits.TooShort(now))
	}}
}
