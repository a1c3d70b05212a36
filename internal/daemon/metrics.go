package daemon

import (
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// kubeProxyVersion is the release of kube-proxy whose behaviour the daemon has.
const kubeProxyVersion = "v1.37.2"

// connectMetrics connects the metrics to what other packages count.
func (d *daemon) connectMetrics() {
	m := d.metrics
	m.Mode(string(d.chosen.asked), string(d.chosen.active))
	m.Families(d.served)
	m.Build(version.String(), kubeProxyVersion)
	m.Inputs(d.known.Changes)
	m.Loop(d.loop.Condition)
	m.Checks(d.health().holds)
	m.ExternalIPs(func() bool { return limitsExternalIPs(d.live.now()) })
	m.APIServerProbes(func() telemetry.APIServerProbes { return apiServerProbes(d.prober) })
	m.HealthPorts(d.healthPorts.count)
	m.Relay(func() telemetry.Relay { return telemetry.Relay(d.relay.Counts()) })
	m.Firewalls(d.firewalls.Blocks)
	m.Events(d.events.Dropped)
	if d.kernel.rules != nil {
		m.RestoreFailures(func(f model.Family) uint64 { return d.kernel.rules.RestoreFailures(f) })
	}
	m.IdleTimes(d.kernel.idleTimes)
	m.Pickup(d.kernel.pickup.states)
	m.Sources(d.synced)
	m.Unreadable(d.sources.unreadableCount)
	d.kernel.calls.observe(m.KernelCall)
	if d.kernel.backend == nil { // sets of nftables have no limit
		m.Sets(newSetUsageReader(d).fill)
	}
	m.Drops(newDropReader(d).read)
	m.Features(func() []telemetry.Feature {
		return []telemetry.Feature{{Name: "AllowServiceExternalIPs", Enabled: d.live.now().AllowExternalIPs}}
	})
	if d.sources.kube != nil {
		m.Watches(d.watches)
	}
	if most := d.live.now().ServiceMetrics; most > 0 {
		m.Services(d.serviceSources(most))
	}
}

// synced reports for each source whether it has delivered all that it can.
func (d *daemon) synced() map[string]bool {
	out, unsynced := map[string]bool{}, d.known.Unsynced()
	for _, o := range d.sources.origins {
		_, not := unsynced[o]
		out[string(o)] = !not
	}
	return out
}

func (d *daemon) watches() map[string]telemetry.Watch {
	out := map[string]telemetry.Watch{}
	for kind, w := range d.sources.kube.Progress() {
		out[kind] = telemetry.Watch{Heard: w.Heard, Failing: string(w.Reason)}
	}
	return out
}
