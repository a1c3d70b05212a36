package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/memory"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// prepare sets the out-of-memory score of this process and the sysctls of connection tracking. The
// daemon starts without any of them.
func (k *kernel) prepare(ctx context.Context, log *zap.Logger, c config.Config) {
	if err := memory.SetOOMScore(ctx, log.Named("tune"), k.files, c.OOMScoreAdj); err != nil {
		log.Warn("setting the out-of-memory score failed, the score stays", zap.Error(err))
	}
	k.sysctls.ApplyConntrack(ctx, sysctl.ConntrackOptions(c.Conntrack)) // each refusal is logged
}

// tune restores sysctls of earlier settings, and sets the sysctls and idle timeouts of IPVS. It
// fails if a required sysctl is refused.
func (k *kernel) tune(ctx context.Context, c config.Config) error {
	k.sysctls.RestoreKeys(ctx, routeLocalnet) // iptables mode set it
	if !c.StrictARP {
		k.sysctls.RestoreKeys(ctx, strictARP...)
	}
	return k.keepTuned(ctx, c)
}

// keepTuned sets again what another program has changed of it. Without a change it costs one read
// of each sysctl.
func (k *kernel) keepTuned(ctx context.Context, c config.Config) error {
	k.keepPickup(ctx)
	return errors.Join(k.demand(ctx, k.setSysctls(ctx, c)), k.setTimeouts(ctx, c))
}

// demand fails if a required sysctl was refused. It reports that each time that it begins, or that
// the reason changes.
func (k *kernel) demand(ctx context.Context, results []sysctl.Result) error {
	if ctx.Err() != nil {
		return ctx.Err() // an interrupted write was not refused
	}
	err, said := sysctl.Demand(results), ""
	if err != nil {
		said = err.Error()
	}
	if said != "" && said != k.unset && k.sysctlRefused != nil {
		k.sysctlRefused(err)
	}
	k.unset = said
	return err
}

// routeLocalnet admits packets to loopback addresses, so it is set only where NodePorts need it.
const routeLocalnet = "net.ipv4.conf.all.route_localnet"

// tuneRules sets the sysctls of iptables mode.
func (k *kernel) tuneRules(ctx context.Context, localhost bool) error {
	if !localhost {
		k.sysctls.RestoreKeys(ctx, routeLocalnet)
	}
	return k.demand(ctx, k.sysctls.Apply(ctx, sysctl.RulesSysctls(localhost)))
}

func (k *kernel) setSysctls(ctx context.Context, c config.Config) []sysctl.Result {
	return k.sysctls.Apply(ctx, nodecheck.IPVSSysctls(k.files, c))
}

// setTimeouts sets the configured idle timeouts, and logs one that is too short.
func (k *kernel) setTimeouts(ctx context.Context, c config.Config) error {
	idle := k.idle.Load()
	if idle == nil {
		return nil
	}
	return idle.keep(ctx, c.Timeouts)
}

// The sysctls of strict ARP.
var strictARP = []string{"net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce"}

// retune applies settings that changed. Without strict ARP its sysctls get their old values back.
// It returns the settings that the node refused, with the reason for each: a container may lack
// the right to set a sysctl that its init container has.
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
		return sysctl.Failure(k.sysctls.RestoreKeys(ctx, strictARP...), sysctl.Wanted)
	}
	arp := slices.DeleteFunc(k.setSysctls(ctx, c), func(r sysctl.Result) bool { return !slices.Contains(strictARP, r.Key) })
	return sysctl.Failure(arp, sysctl.Wanted)
}

// initialize does the set-up that needs more privileges than the daemon, as kube-proxy's
// --init-only: modules, sysctls, idle timeouts. Afterwards CAP_NET_ADMIN suffices, and
// CAP_NET_RAW for iptables. It writes no Service and asks no API server.
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
	chosen.report(log, nil)
	k.prepare(ctx, log, c)
	if chosen.active == config.ModeIPTables {
		mc := wiring.IPTablesConfig(c, wiring.Families(k.rules), k.rules)
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
