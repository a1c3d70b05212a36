package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// timeoutsHandle reads and writes the idle timeouts of IPVS; *vserver.Handle is one.
type timeoutsHandle interface {
	Timeouts(ctx context.Context) (vserver.Timeouts, error)
	SetTimeouts(ctx context.Context, t vserver.Timeouts) error
}

// A timeoutEnforcer keeps the idle timeouts of IPVS as configured (internal/DECISIONS.md, Idle
// timeouts). Only the loop uses it; inForce may be called from any goroutine.
type timeoutEnforcer struct {
	log     *zap.Logger
	kernel  timeoutsHandle
	sysctls *sysctl.Handle
	logged  string                           // the last warning
	now     atomic.Pointer[vserver.Timeouts] // as last read; nil while unknown
}

// idleTimes returns the timeouts in force, if they are known.
func (k *kernel) idleTimes() (now telemetry.IdleTimes, known bool) {
	idle := k.idle.Load()
	if idle == nil {
		return telemetry.IdleTimes{}, false
	}
	return idle.inForce()
}

func newTimeoutEnforcer(log *zap.Logger, kernel timeoutsHandle, sysctls *sysctl.Handle) *timeoutEnforcer {
	return &timeoutEnforcer{log: log, kernel: kernel, sysctls: sysctls}
}

// keep sets the configured timeouts where IPVS has others. It logs a timeout of TCP that is too
// short, once for each reason. Without configured timeouts it only reads, and a read error is
// logged and not returned.
func (k *timeoutEnforcer) keep(ctx context.Context, asked config.Timeouts) error {
	limits, unknown := k.sysctls.IdleLimits(ctx)
	if asked.Recommended && unknown != nil {
		return fmt.Errorf("recommended IPVS timeouts: %w", unknown)
	}
	now, err := k.set(ctx, nodecheck.DesiredTimeouts(asked, limits))
	if err != nil {
		k.now.Store(nil)
		if asked == (config.Timeouts{}) {
			k.warn(err, "cannot read the IPVS connection timeouts")
			return nil
		}
		return err
	}
	k.now.Store(&now)
	if unknown != nil {
		k.warn(unknown, "cannot read the connection timeouts of this node")
	} else {
		k.warn(limits.TooShort(now.TCP), "the IPVS timeout of TCP connections is too short", zap.String("remedy", sysctl.IdleFix))
	}
	return nil
}

// set writes the timeouts that differ, and returns those that the kernel has then.
func (k *timeoutEnforcer) set(ctx context.Context, want vserver.Timeouts) (vserver.Timeouts, error) {
	want, err := want.Rounded()
	if err != nil {
		return want, fmt.Errorf("IPVS timeouts: %w", err)
	}
	was, err := k.kernel.Timeouts(ctx)
	if err != nil || nodecheck.Overlay(was, want) == was {
		return was, err
	}
	if err := k.kernel.SetTimeouts(ctx, want); err != nil {
		return was, err
	}
	now, err := k.kernel.Timeouts(ctx)
	if err == nil && nodecheck.Overlay(now, want) != now {
		err = fmt.Errorf("the kernel has IPVS timeouts %+[2]v instead of %+[1]v", want, now)
	}
	if err == nil {
		k.log.Info("IPVS connection timeouts changed", zap.String("was", fmt.Sprintf("%+v", was)), zap.String("now", fmt.Sprintf("%+v", now)))
	}
	return now, err
}

// warn logs err unless it is the same as before; nil means that all is well.
func (k *timeoutEnforcer) warn(err error, message string, fields ...zap.Field) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.logged {
		k.log.Warn(message, append(fields, zap.Error(err))...)
	}
	k.logged = text
}

// inForce returns the timeouts that the kernel had at the last keep.
func (k *timeoutEnforcer) inForce() (now telemetry.IdleTimes, known bool) {
	t := k.now.Load()
	if t == nil {
		return telemetry.IdleTimes{}, false
	}
	return telemetry.IdleTimes(*t), true
}

// reportKept logs each timeout that changes to 0, which leaves it as the kernel has it: the original
// value is not known.
func reportKept(log *zap.Logger, from, to config.Timeouts) {
	if to.Recommended {
		return
	}
	for _, t := range []struct {
		name     string
		was, now time.Duration
	}{{"ipvs.tcpTimeout", from.TCP, to.TCP}, {"ipvs.tcpFinTimeout", from.TCPFin, to.TCPFin}, {"ipvs.udpTimeout", from.UDP, to.UDP}} {
		switch {
		case t.now != 0:
		case t.was > 0:
			log.Warn("0 keeps the value of the kernel", zap.String("setting", t.name), zap.Duration("kept", t.was))
		case from.Recommended:
			log.Warn("0 keeps the value of the kernel", zap.String("setting", t.name), zap.String("kept", config.Recommended))
		}
	}
}
