package ipvs

import (
	"context"
	"errors"
	"maps"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// losses records rows that another process deleted, so that they become pending.
type losses struct{ of *managers }

// LinkLost makes the device again. Its addresses are all gone.
func (l *losses) LinkLost(ctx context.Context) error { return l.of.addresses.OnLinkLost(ctx) }

// AddressLost records that another process unbound an address.
func (l *losses) AddressLost(a netip.Addr) { l.of.addresses.Addresses.DropActual(a) }

// RouteLost records that another process deleted a local route of ours.
func (l *losses) RouteLost(p netip.Prefix) { l.of.addresses.Routes.DropActual(p) }

// ReloadRules reads chains and jumps again after a sign that another process changed them.
func (l *losses) ReloadRules(ctx context.Context) error { return l.of.chains.Reload(ctx) }

// ReloadTables reads rules again and samples the sets, after another process has written to where
// both are. It returns which rows were lost.
func (l *losses) ReloadTables(ctx context.Context) (dataplane.Drift, error) {
	drift, err := l.of.chains.Load(ctx)
	entries, unlisted := l.of.sets.Sample(ctx)
	out := dataplane.Drift{"members": entries}
	maps.Copy(out, drift)
	return out, errors.Join(err, unlisted)
}

// serverLost records that a virtual server does not exist any more, nor do its destinations.
func (l *losses) serverLost(k vserver.ServerKey) {
	l.of.servers.DropActual(k)
	l.of.destinations.OnServerLost(k)
}
