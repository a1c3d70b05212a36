package ipvs

import (
	"context"
	"errors"
	"maps"
	"net/netip"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// This file keeps memory honest when rows vanish together: with their set, with
// their server, with the device.

// releaseSet empties our chains that refer to a set.
func (m *Mode) releaseSet(ctx context.Context, set string) error {
	var batch []rules.ChainChange
	for k, c := range maps.Collect(m.chains.Actual()) {
		if c.RefersTo(k.Family, set) {
			batch = append(batch, rules.ChainChange{Op: rules.Update, Key: k})
			m.chains.SetActual(k, netfilter.Chain{})
		}
	}
	if len(batch) == 0 {
		return nil
	}
	m.log.Warn("rules removed for a moment, because a set with the wrong type must be replaced", zap.String("table", "sets"), zap.String("set", set))
	return errors.Join(m.deps.Rules.WriteChains(ctx, batch)...)
}

// serverLost records that a virtual server does not exist any more, nor do its destinations.
func (m *Mode) serverLost(k vserver.ServerKey) {
	m.servers.DropActual(k)
	m.destinations.OnServerLost(k)
}

// LinkLost makes the device again, whose addresses are all gone.
func (m *Mode) LinkLost(ctx context.Context) error {
	return m.addresses.OnLinkLost(ctx)
}

// AddressLost records that somebody else unbound an address.
func (m *Mode) AddressLost(a netip.Addr) { m.addresses.Addresses.DropActual(a) }

// RouteLost records that somebody else deleted a local route of ours.
func (m *Mode) RouteLost(p netip.Prefix) { m.addresses.Routes.DropActual(p) }

// ReloadAddresses reads the device and our routes again, after events were lost.
func (m *Mode) ReloadAddresses(ctx context.Context) error {
	_, err := m.addresses.InspectAddresses(ctx)
	_, routesErr := m.inspectRoutes(ctx)
	_, detachedErr := m.inspectDetached(ctx)
	return errors.Join(err, routesErr, detachedErr)
}

// ReloadRules reads chains and jumps again after a sign that somebody else has changed
// them.
func (m *Mode) ReloadRules(ctx context.Context) error {
	drift, err := m.loadRules(ctx)
	if err == nil && drift.Total() > 0 {
		m.log.Warn("rules are missing, writing them again", zap.Any("rows", drift))
	}
	return err
}
