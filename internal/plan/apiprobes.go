package plan

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file follows the probes of API servers (internal/DECISIONS.md, Probes of API servers).

// failing returns why an endpoint fails its probes, empty if it does not. Only endpoints of the API
// servers are probed, over TCP.
func (j *compilation) failing(p model.Protocol, at netip.AddrPort) string {
	if p != model.TCP || !j.id.APIServer() {
		return ""
	}
	return j.opts.Host.Failing[at]
}

// leaveOutFailing gives the backends that fail their probes weight 0, so that they get no new
// connections and keep those that they have. It changes none if too few of them would be left.
func (j *compilation) leaveOutFailing(p model.Protocol, list []model.Backend) {
	taking, bad := j.countFailing(p, list)
	if bad == 0 {
		return
	}
	if !model.EnoughAvailable(taking-bad, taking) {
		j.notes.addf(model.ProbesIgnored, "%d of %d endpoints fail their probes: these are ignored, because fewer than half would be left", bad, taking)
		return
	}
	for i := range list {
		if why := j.failing(p, list[i].Addr); why != "" && list[i].Weight > 0 {
			list[i].Weight = 0
			j.notes.addf(model.EndpointFailsProbe, "endpoint %s gets no new connections: it fails its probes: %s", list[i].Addr, why)
		}
	}
}

// countFailing counts the backends that take new connections, and those of them that fail their
// probes.
func (j *compilation) countFailing(p model.Protocol, list []model.Backend) (taking, bad int) {
	if p != model.TCP || !j.id.APIServer() || len(j.opts.Host.Failing) == 0 {
		return 0, 0
	}
	for _, b := range list {
		if b.Weight == 0 {
			continue
		}
		taking++
		if j.failing(p, b.Addr) != "" {
			bad++
		}
	}
	return taking, bad
}

// probed changes the verdict on a backend by its probes.
func (t *teller) probed(c *choice, at netip.AddrPort, v *model.Verdict) {
	why := t.failing(t.port.Protocol, at)
	if why == "" || v.Weight == 0 {
		return
	}
	for _, b := range t.backends(t.port.Protocol, t.all, *c) {
		switch {
		case b.Addr != at:
		case b.Weight == 0:
			v.Use, v.Weight, v.Why = model.UseDrained, 0, "weight 0, because it fails its probes: "+why
		default:
			v.Why = "it fails its probes, which are ignored, because fewer than half would be left: " + why
		}
	}
}
