package wiring

import (
	"context"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// ServiceCIDRLister lists the ranges of cluster IPs of an API server.
type ServiceCIDRLister interface {
	ServiceCIDRs(ctx context.Context) ([]netip.Prefix, error)
}

// WithServiceCIDRs returns the settings with the ranges of the API server, where addresses become
// local by routes and no ranges are configured. Without an answer there are no ranges, and each
// address is bound.
func WithServiceCIDRs(ctx context.Context, log *zap.Logger, c config.Config, api ServiceCIDRLister) config.Config {
	if c.VIPBinding != config.VIPBindingRoute || len(c.ServiceCIDRs) > 0 || c.Mode == config.ModeIPTables {
		return c
	}
	ranges, err := api.ServiceCIDRs(ctx)
	if err != nil {
		log.Warn("the ranges of cluster IPs cannot be read, so each address is bound: set --service-cidrs, or allow this agent to list ServiceCIDRs and restart it", zap.Error(err))
		return c
	}
	for _, r := range ranges {
		if why := config.WrongServiceCIDR(r, c.DetectLocal.ClusterCIDRs); why != "" {
			log.Warn("a range of cluster IPs is not routed", zap.Stringer("range", r), zap.String("reason", why))
			continue
		}
		c.ServiceCIDRs = append(c.ServiceCIDRs, r)
	}
	slices.SortFunc(c.ServiceCIDRs, netip.Prefix.Compare)
	c.ServiceCIDRs = slices.Compact(c.ServiceCIDRs)
	log.Info("ranges of cluster IPs", zap.Stringers("ranges", c.ServiceCIDRs))
	return c
}
