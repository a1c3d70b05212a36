package telemetry

import "time"

// IdleTimes are for how long IPVS keeps a connection on which nothing happens.
type IdleTimes struct{ TCP, TCPFin, UDP time.Duration }

// IdleTimes shows them as the kernel has them, whatever it was asked for; nothing,
// while read does not know.
func (m *Metrics) IdleTimes(read func() (now IdleTimes, known bool)) {
	m.pullGauge(ours+"ipvs_timeout_seconds", "Idle timeout of IPVS connections in the kernel.",
		func(e emit) {
			now, known := read()
			if !known {
				return
			}
			e(now.TCP.Seconds(), "tcp")
			e(now.TCPFin.Seconds(), "tcpfin")
			e(now.UDP.Seconds(), "udp")
		}, "protocol")
}
