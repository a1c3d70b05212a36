package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

// watchRetryPause is the time until a broken watch is retried; the audit covers it.
const watchRetryPause = time.Second

// watchLink has the loop repair the device and its addresses as soon as another program removes
// them, until ctx ends.
func watchLink(ctx context.Context, log *zap.Logger, l *link.Handle, loop *agent.Agent, mode *activeMode) error {
	for ctx.Err() == nil {
		err := l.Watch(ctx, func(e link.Event) {
			repairLink(ctx, log, loop, mode, e)
			rereadHost(loop, e)
		})
		if err != nil && ctx.Err() == nil {
			log.Warn("watch of kube-ipvs0 failed, will be started again", zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchRetryPause):
		}
	}
	return nil
}

func repairLink(ctx context.Context, log *zap.Logger, loop *agent.Agent, mode *activeMode, e link.Event) {
	repair := bindingRepair(mode.ipvs, e)
	if repair == nil {
		repair = announcementRepair(mode.announced(), e)
	}
	if repair == nil {
		return // addresses of other links are not repaired
	}
	if e.Kind != link.Ready {
		log.Debug("another program changed kube-ipvs0, repairing it", zap.Stringer("event", e))
	}
	if err := loop.Repair(ctx, repair); err != nil && ctx.Err() == nil {
		log.Warn("repair of kube-ipvs0 failed, the next audit will try again", zap.Error(err))
	}
}

// bindingRepair returns how a loss of the device or of what makes addresses local is repaired; nil for
// other events, and in iptables mode, which binds nothing.
func bindingRepair(mode *ipvs.Mode, e link.Event) func(context.Context) error {
	if mode == nil {
		return nil
	}
	switch e.Kind {
	case link.OurAddressLost:
		return func(context.Context) error { mode.AddressLost(e.Addr); return nil }
	case link.OurRouteLost:
		return func(context.Context) error { mode.RouteLost(e.Route); return nil }
	case link.OurLinkLost:
		return mode.LinkLost
	case link.Ready, link.Overrun:
		return mode.ReloadAddresses
	}
	return nil
}

// rereadHost makes the loop read the node's own addresses and next hops again when they may have
// changed.
func rereadHost(loop *agent.Agent, e link.Event) {
	switch e.Kind {
	case link.NodeAddressesChanged, link.DefaultRoutesChanged, link.Ready, link.Overrun:
		loop.HostChanged()
	}
}
