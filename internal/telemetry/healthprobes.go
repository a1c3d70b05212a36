package telemetry

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// probes counts the answers of the health port by path.
type probes map[string]*prometheus.CounterVec

func newProbes(registry *prometheus.Registry) probes {
	p := probes{
		"/healthz": counters(theirs+"proxy_healthz_total", "Answers to /healthz by HTTP status.", "code"),
		"/livez":   counters(theirs+"proxy_livez_total", "Answers to /livez by HTTP status.", "code"),
		"/readyz":  counters(ours+"readyz_total", "Answers to /readyz by HTTP status.", "code"),
	}
	for _, answers := range p {
		answers.WithLabelValues("200")
		answers.WithLabelValues("503")
		registry.MustRegister(answers)
	}
	return p
}

// Probed counts one answer of the health port. Other paths are not counted.
func (m *Metrics) Probed(path string, code int) {
	if answers, ok := m.probes[path]; ok {
		answers.WithLabelValues(strconv.Itoa(code)).Inc()
	}
}
