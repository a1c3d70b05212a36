package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
)

// prepare makes the node fit before anything is carried: what the agent's process
// asks for itself, and connection tracking. None of it is worth not starting for.
func (k *kernel) prepare(ctx context.Context, log *zap.Logger, c config.Config) {
	if err := k.tuner.SetOOMScore(ctx, c.OOMScoreAdj); err != nil {
		log.Warn("out-of-memory score stays", zap.Error(err))
	}
	k.tuner.ApplyConntrack(ctx, tune.ConntrackOptions(c.Conntrack)) // each refusal is named
}

// tune takes back sysctls that earlier settings asked for, and sets those of IPVS and its
// idle times; a sysctl that is required and refused ends it.
func (k *kernel) tune(ctx context.Context, c config.Config) error {
	k.tuner.RestoreKeys(ctx, routeLocalnet) // of iptables mode, before
	if !c.StrictARP {
		k.tuner.RestoreKeys(ctx, strictARP...)
	}
	return k.keepTuned(ctx, c)
}

// keepTuned sets again what tune sets, where another program has changed it. It costs one
// read of each sysctl where none has.
func (k *kernel) keepTuned(ctx context.Context, c config.Config) error {
	return errors.Join(k.demand(ctx, k.setSysctls(ctx, c)), k.setTimeouts(ctx, c))
}

// demand fails where a sysctl is refused without which nothing may be carried. It tells so
// each time that this begins, or that there is another reason.
func (k *kernel) demand(ctx context.Context, results []tune.SysctlResult) error {
	if ctx.Err() != nil {
		return ctx.Err() // told to stop: what was interrupted was not refused
	}
	err, said := tune.Demand(results), ""
	if err != nil {
		said = err.Error()
	}
	if said != "" && said != k.unset && k.sysctlRefused != nil {
		k.sysctlRefused(err)
	}
	k.unset = said
	return err
}

// routeLocalnet lets packets to loopback in, and so is there for nobody who has no use for it.
const routeLocalnet = "net.ipv4.conf.all.route_localnet"

// tuneRules sets what iptables mode needs.
func (k *kernel) tuneRules(ctx context.Context, localhost bool) error {
	if !localhost {
		k.tuner.RestoreKeys(ctx, routeLocalnet)
	}
	return k.demand(ctx, k.tuner.Apply(ctx, tune.RulesSysctls(localhost)))
}

func (k *kernel) setSysctls(ctx context.Context, c config.Config) []tune.SysctlResult {
	return k.tuner.Apply(ctx, nodecheck.IPVSSysctls(k.tuner, c))
}

// setTimeouts leaves alone what is not asked for, and warns of what is too short.
func (k *kernel) setTimeouts(ctx context.Context, c config.Config) error {
	idle := k.idle.Load()
	if idle == nil {
		return nil
	}
	return idle.keep(ctx, c.Timeouts)
}

// The sysctls of strict ARP.
var strictARP = []string{"net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce"}

// retune sets what follows from settings that changed from one to the other. What
// strict ARP set and is not asked for any more gets its old value back. It returns the
// settings that the node could not be given, with the reason for each: a container
// may have no right to set a sysctl, where its init container has.
func (k *kernel) retune(ctx context.Context, from, to config.Config) map[string]error {
	refused := map[string]error{}
	if from.StrictARP != to.StrictARP {
		if err := k.setStrictARP(ctx, to); err != nil {
			refused["ipvs.strictARP"] = err
		}
	}
	if from.Timeouts != to.Timeouts {
		if err := k.setTimeouts(ctx, to); err != nil {
			for _, field := range []string{"ipvs.tcpTimeout", "ipvs.tcpFinTimeout", "ipvs.udpTimeout", "ipvsTimeouts"} {
				refused[field] = err
			}
		}
	}
	return refused
}

func (k *kernel) setStrictARP(ctx context.Context, c config.Config) error {
	if !c.StrictARP {
		return tune.Failure(k.tuner.RestoreKeys(ctx, strictARP...), tune.Wanted)
	}
	arp := slices.DeleteFunc(k.setSysctls(ctx, c), func(r tune.SysctlResult) bool { return !slices.Contains(strictARP, r.Key) })
	return tune.Failure(arp, tune.Wanted)
}

// initialize does the set-up that needs more privileges than running does, as kube-proxy's
// --init-only: modules, sysctls, idle timeouts. Afterwards CAP_NET_ADMIN suffices, and
// CAP_NET_RAW for iptables. It programs no Service and asks no API server.
func initialize(ctx context.Context, log *zap.Logger, c config.Config) error {
	lock, err := lockNode(log, "run --init-only", c.RunDir)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	defer lock.Close()
	k, c, chosen, err := openKernel(ctx, log, c)
	if err != nil {
		return err
	}
	chosen.say(log, nil)
	k.prepare(ctx, log, c)
	if chosen.active == config.ModeIPTables {
		mc := rulesConfig(c, families(k.rules), k.rules)
		err = k.tuneRules(ctx, mc.Localhost && mc.Loopback())
	} else {
		err = k.tune(ctx, c)
	}
	if err = k.close(err); err != nil {
		return fmt.Errorf("%s mode cannot run on this node: %w", chosen.active, err)
	}
	log.Info("node initialized", zap.String("mode", string(chosen.active)), zap.Stringer("scheduler", c.Scheduler))
	return nil
}
