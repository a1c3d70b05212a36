package vservertest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Carry adds to what a destination and its server have carried.
func (f *Fake) Carry(k vserver.DestinationKey, more vserver.Traffic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.Carry(k, more)
}

// ListTraffic is vserver.Handle.ListTraffic.
func (f *Fake) ListTraffic(ctx context.Context) (map[vserver.ServerKey]vserver.ServerTraffic, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("list traffic of servers: %w", err)
	}
	f.count.Dumps++
	out := map[vserver.ServerKey]vserver.ServerTraffic{}
	for k, s := range shown(f, f.table.Servers) {
		out[k] = vserver.ServerTraffic{Scheduler: s.Scheduler, Traffic: f.table.Carried[k]}
	}
	return out, nil
}

// ListDestinationTraffic is vserver.Handle.ListDestinationTraffic.
func (f *Fake) ListDestinationTraffic(ctx context.Context, k vserver.ServerKey) (map[vserver.DestinationKey]vserver.DestinationTraffic, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("list traffic of destinations of %s: %w", k, err)
	}
	f.count.Dumps++
	out := map[vserver.DestinationKey]vserver.DestinationTraffic{}
	for dk, d := range shown(f, f.table.Destinations[k]) {
		out[dk] = vserver.DestinationTraffic{Weight: d.Weight, Connections: f.table.Connections[dk], Carried: f.table.CarriedBy[dk]}
	}
	return out, nil
}

// ListLoads is vserver.Handle.ListLoads.
func (f *Fake) ListLoads(ctx context.Context) (map[vserver.ServerKey]vserver.Load, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("list connections of servers: %w", err)
	}
	f.count.Dumps++
	out := map[vserver.ServerKey]vserver.Load{}
	for k := range shown(f, f.table.Servers) {
		out[k] = f.load(k)
	}
	return out, nil
}

func (f *Fake) load(k vserver.ServerKey) (l vserver.Load) {
	for dk, d := range shown(f, f.table.Destinations[k]) {
		c := f.table.Connections[dk]
		l.Destinations++
		l.Active += uint64(c.Active)
		l.Inactive += uint64(c.Inactive)
		l.MostActive = max(l.MostActive, c.Active)
		if d.Weight == 0 {
			l.Quiet = append(l.Quiet, netip.AddrPortFrom(dk.Addr, dk.Port))
		}
	}
	slices.SortFunc(l.Quiet, netip.AddrPort.Compare)
	return l
}
