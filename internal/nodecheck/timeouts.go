package nodecheck

import (
	"context"
	"errors"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck/host"
)

// DesiredTimeouts returns the idle timeouts of IPVS that the settings ask for, on a node of these
// limits. 0 leaves a timeout as the kernel has it.
func DesiredTimeouts(asked config.Timeouts, limits sysctl.IdleLimits) vserver.Timeouts {
	t := vserver.Timeouts{TCP: asked.TCP, TCPFin: asked.TCPFin, UDP: asked.UDP}
	if asked.Recommended {
		t = Overlay(vserver.Timeouts(limits.Recommended()), t)
	}
	return t
}

// Overlay returns below with each timeout of above that is not 0.
func Overlay(below, above vserver.Timeouts) vserver.Timeouts {
	for _, t := range []struct {
		to *time.Duration
		by time.Duration
	}{{&below.TCP, above.TCP}, {&below.TCPFin, above.TCPFin}, {&below.UDP, above.UDP}} {
		if t.by != 0 {
			*t.to = t.by
		}
	}
	return below
}

// timeoutsHandle reads the idle timeouts of IPVS; *vserver.Handle is one.
type timeoutsHandle interface {
	Timeouts(ctx context.Context) (vserver.Timeouts, error)
	Close()
}

// timeoutChecks returns the check of the idle timeout of TCP that is in force once the agent runs
// with the settings. Without IPVS there is none, and other checks say so.
func timeoutChecks(n *host.Node, asked config.Timeouts, open func() (timeoutsHandle, error)) []diagnosis.Check {
	h, err := open()
	if errors.Is(err, vserver.ErrUnsupported) {
		return nil
	}
	if err == nil {
		h.Close()
	}
	return []diagnosis.Check{n.IdleCheck(func(ctx context.Context, limits sysctl.IdleLimits) (time.Duration, error) {
		h, err := open()
		if err != nil {
			return 0, err
		}
		defer h.Close()
		now, err := h.Timeouts(ctx)
		return Overlay(now, DesiredTimeouts(asked, limits)).TCP, err
	})}
}
