package telemetry

// Pickup shows of which protocols IPVS picks up connections that another node began: 1 while the
// sysctl is in force, 0 while it cannot be set. A protocol for which no Service needs it is absent.
func (m *Metrics) Pickup(read func() map[string]bool) {
	m.pullGauge(ours+"connection_pickup", "1 while connections that another node began continue on this one, 0 while the sysctl for it cannot be set.",
		func(e emit) {
			for protocol, on := range read() {
				e(truth(on), protocol)
			}
		}, "protocol")
}
