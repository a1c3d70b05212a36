package telemetry

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reload is the result of reading a new configuration file.
type Reload string

// The results of a new configuration file.
const (
	Applied       Reload = "applied"        // all of it is in force
	RestartNeeded Reload = "restart_needed" // the rest is in force
	Refused       Reload = "refused"        // it is wrong, the old settings stay
)

type settings struct {
	reloads     *prometheus.CounterVec
	succeeded   prometheus.Gauge
	hash, since *prometheus.GaugeVec
}

func newSettings(registry *prometheus.Registry) settings {
	s := settings{
		reloads:   counters(ours+"config_reloads_total", "New configuration files, by result.", "result"),
		succeeded: gauge(ours+"config_last_reload_successful", "0 while the latest configuration file is refused."),
		// Without labels, but unlike plain gauges absent until they are set.
		hash:  gauges(ours+"config_hash", "The first 48 bits of the SHA-256 of the configuration in use."),
		since: gauges(ours+"config_last_reload_timestamp_seconds", "Time when the configuration in use was read, in seconds since 1970."),
	}
	for _, r := range []Reload{Applied, RestartNeeded, Refused} {
		s.reloads.WithLabelValues(string(r))
	}
	s.succeeded.Set(1)
	registry.MustRegister(s.reloads, s.succeeded, s.hash, s.since)
	return s
}

// Settings sets the metrics of the configuration in force and when it was read. Nodes with the
// same text show the same hash: count_values finds those that are behind.
func (m *Metrics) Settings(text []byte, at time.Time) {
	sum := sha256.Sum256(text)
	// A float holds 53 bits.
	m.settings.hash.WithLabelValues().Set(float64(binary.BigEndian.Uint64(sum[:8]) >> 16))
	m.settings.since.WithLabelValues().Set(seconds(at))
}

// Reloaded counts a new configuration file; where it came into force, Settings records it
// what it is.
func (m *Metrics) Reloaded(r Reload) {
	m.settings.reloads.WithLabelValues(string(r)).Inc()
	m.settings.succeeded.Set(truth(r != Refused))
}
