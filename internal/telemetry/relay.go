package telemetry

import "github.com/kube-ipvs/kube-ipvs/internal/model"

// Relay counts what the relay of NodePorts on loopback does (internal/relay).
type Relay struct {
	// Open and Failed ports.
	Open, Failed int
	// Connections that are open, and how often one met the limit, by protocol.
	Connections, Limited map[model.Protocol]uint64
}

// Relay shows the relay of NodePorts on loopback.
func (m *Metrics) Relay(read func() Relay) {
	m.pullGauge(ours+"relay_ports", "NodePorts on loopback addresses (--nodeport-addresses=localhost), by state. failed: cannot be opened, mostly because another process has the port.", func(e emit) {
		r := read()
		e(float64(r.Open), "open")
		e(float64(r.Failed), "failed")
	}, "state")
	m.pullGauge(ours+"relay_connections", "Connections of TCP and flows of UDP to NodePorts on loopback addresses.", func(e emit) {
		for p, n := range read().Connections {
			e(float64(n), p.String())
		}
	}, "protocol")
	m.pullCounter(ours+"relay_limited_total", "Connections of TCP to NodePorts on loopback that were reset, and flows of UDP that ended, because of their number.", func(e emit) {
		for p, n := range read().Limited {
			e(float64(n), p.String())
		}
	}, "protocol")
}
