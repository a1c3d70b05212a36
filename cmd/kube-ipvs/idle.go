package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// idleKernel is where the idle times of IPVS are.
type idleKernel interface {
	Timeouts(ctx context.Context) (vserver.Timeouts, error)
	SetTimeouts(ctx context.Context, t vserver.Timeouts) error
}

// idleKeeper keeps the idle timeouts of IPVS as configured (internal/DECISIONS.md, Idle
// timeouts). Only the loop uses it and the handle below; inForce is safe for all goroutines.
type idleKeeper struct {
	log    *zap.Logger
	kernel idleKernel
	tuner  *tune.Tuner
	said   string                           // the warning in the log
	now    atomic.Pointer[vserver.Timeouts] // as read; nil while nobody knows
}

// idleTimes are those in force, as far as they are known.
func (k *kernel) idleTimes() (now telemetry.IdleTimes, known bool) {
	idle := k.idle.Load()
	if idle == nil {
		return telemetry.IdleTimes{}, false
	}
	return idle.inForce()
}

func newIdleKeeper(log *zap.Logger, kernel idleKernel, tuner *tune.Tuner) *idleKeeper {
	return &idleKeeper{log: log, kernel: kernel, tuner: tuner}
}

// keep gives IPVS the times that are asked for where it has others, whoever changed
// them, and warns where that for TCP is too short, once for each reason. It writes
// nothing that is right. Where nothing is asked for it only looks, and nothing that it
// cannot see is an error.
func (k *idleKeeper) keep(ctx context.Context, asked config.Timeouts) error {
	limits, unknown := k.tuner.IdleLimits(ctx)
	if asked.Recommended && unknown != nil {
		return fmt.Errorf("recommended idle times: %w", unknown)
	}
	now, err := k.set(ctx, nodecheck.DesiredTimeouts(asked, limits))
	if err != nil {
		k.now.Store(nil)
		if asked == (config.Timeouts{}) {
			k.warn(err, "idle times of IPVS not known")
			return nil
		}
		return err
	}
	k.now.Store(&now)
	if unknown != nil {
		k.warn(unknown, "idle times of this node not known")
	} else {
		k.warn(limits.TooShort(now.TCP), "idle connections end without a word", zap.String("remedy", tune.IdleFix))
	}
	return nil
}

// set writes what differs, and returns what the kernel has then.
func (k *idleKeeper) set(ctx context.Context, want vserver.Timeouts) (vserver.Timeouts, error) {
	want, err := want.Rounded()
	if err != nil {
		return want, fmt.Errorf("idle times: %w", err)
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
		err = fmt.Errorf("idle times %+v asked for, and the kernel has %+v", want, now)
	}
	if err == nil {
		k.log.Info("idle times of IPVS changed", zap.String("was", fmt.Sprintf("%+v", was)), zap.String("now", fmt.Sprintf("%+v", now)))
	}
	return now, err
}

// warn says what is wrong when it is something else than before; nil is all well.
func (k *idleKeeper) warn(err error, message string, fields ...zap.Field) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.said {
		k.log.Warn(message, append(fields, zap.Error(err))...)
	}
	k.said = text
}

// inForce are the times as the kernel had them when keep last looked.
func (k *idleKeeper) inForce() (now telemetry.IdleTimes, known bool) {
	t := k.now.Load()
	if t == nil {
		return telemetry.IdleTimes{}, false
	}
	return telemetry.IdleTimes(*t), true
}

// sayKept tells that 0 leaves what the kernel has: nobody knows what it had before.
func sayKept(log *zap.Logger, from, to config.Timeouts) {
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
			log.Warn("0 leaves what the kernel has", zap.String("setting", t.name), zap.Duration("kept", t.was))
		case from.Recommended:
			log.Warn("0 leaves what the kernel has", zap.String("setting", t.name), zap.String("kept", config.Recommended))
		}
	}
}
