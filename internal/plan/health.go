package plan

import "github.com/kube-ipvs/kube-ipvs/internal/model"

// health returns the answer of the health-check node port. As in kube-proxy, it counts the
// addresses with a ready endpoint on this node, on any port. A terminating endpoint does
// not count even if it serves, so that load balancers leave the node in time.
func (j *compilation) health() model.HealthCheck {
	if j.svc.HealthCheckNodePort == 0 {
		return model.HealthCheck{}
	}
	h := model.HealthCheck{
		Port: j.svc.HealthCheckNodePort,
		IPv4: j.family(model.IPv4).localEndpoints(),
		IPv6: j.family(model.IPv6).localEndpoints(),
	}
	switch {
	case h.IPv4.Served && !h.IPv6.Served && j.opts.IPv6:
		h.IPv6 = model.LocalEndpoints{Served: true, Other: true, Ready: h.IPv4.Ready}
	case h.IPv6.Served && !h.IPv4.Served && j.opts.IPv4:
		h.IPv4 = model.LocalEndpoints{Served: true, Other: true, Ready: h.IPv6.Ready}
	}
	return h
}

func (s *familyState) localEndpoints() model.LocalEndpoints {
	return model.LocalEndpoints{Served: s.served(), Ready: len(sortedAddrs(s.ready))}
}

// addReady lists the ready endpoints on this node behind one port.
func (s *familyState) addReady(all []candidate, node string) {
	for _, c := range all {
		if c.ep.Ready && isOn(c.ep, node) {
			s.ready = append(s.ready, c.addr.Addr())
		}
	}
}
