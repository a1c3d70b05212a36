package audit

import (
	"context"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// inspectAllServers compares the list of virtual servers, not their destinations.
func (a *Auditor) inspectAllServers(ctx context.Context) (int, error) {
	before := maps.Collect(a.of.Servers.Actual())
	drift, err := a.of.Servers.Load(ctx)
	if err != nil {
		return 0, err
	}
	for k := range before {
		if _, there := a.of.Servers.Believed(k); !there {
			a.of.ServerLost(k) // and its destinations with it
		}
	}
	return drift, nil
}

// inspectServers compares some virtual servers and their destinations. Servers that were deleted
// while the audit waited are skipped.
func (a *Auditor) inspectServers(ctx context.Context, keys []vserver.ServerKey) (dataplane.Drift, error) {
	there, servers, err := a.compareServers(ctx, keys)
	drift, left := dataplane.Drift{"servers": servers}, a.of.Destinations.Left()
	for _, k := range there {
		n, err := a.of.Destinations.Inspect(ctx, k, left[k])
		drift["destinations"] += n
		if err != nil {
			return drift, err
		}
	}
	return drift, err
}

// inspectBriefly compares some virtual servers, not their destinations.
func (a *Auditor) inspectBriefly(ctx context.Context, keys []vserver.ServerKey) (dataplane.Drift, error) {
	_, servers, err := a.compareServers(ctx, keys)
	return dataplane.Drift{"servers": servers}, err
}

// compareServers reads some virtual servers, and returns those that are in place.
func (a *Auditor) compareServers(ctx context.Context, keys []vserver.ServerKey) (there []vserver.ServerKey, drift int, err error) {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k vserver.ServerKey) bool { return !a.sees(k) })
	found, err := a.of.Kernel.GetServers(ctx, keys)
	if err != nil {
		return nil, 0, err
	}
	for _, k := range keys {
		have, believed := a.of.Servers.Believed(k)
		s, is := found[k]
		switch {
		case !is && believed:
			a.of.ServerLost(k)
			drift++
		case is && (!believed || have != s):
			a.of.Servers.SetActual(k, s)
			drift++
		}
		if is {
			there = append(there, k)
		}
	}
	return there, drift, nil
}
