package telemetry

import (
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// slis are the service level indicators of a Kubernetes component. kube-proxy has one
// check, ping, which succeeds whenever /healthz of its metrics port answers.
type slis struct {
	registry *prometheus.Registry
	latest   *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

func newSLIs(began time.Time) slis {
	s := slis{
		registry: prometheus.NewRegistry(),
		latest:   gauges("kubernetes_healthcheck", "Latest result of a health check: 1 is success, 0 is error.", "name", "type"),
		total:    counters("kubernetes_healthchecks_total", "Results of health checks.", "name", "type", "status"),
	}
	start := gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970.")
	start.Set(seconds(began))
	s.registry.MustRegister(s.latest, s.total, start)
	return s
}

// Pinged records that /healthz of the metrics port has answered.
func (m *Metrics) Pinged() {
	m.slis.latest.WithLabelValues("ping", "healthz").Set(1)
	m.slis.total.WithLabelValues("ping", "healthz", "success").Inc()
}

// SLIs serves /metrics/slis. DELETE takes all series away, as with kube-proxy.
func (m *Metrics) SLIs() http.Handler {
	show := promhttp.HandlerFor(m.slis.registry, promhttp.HandlerOpts{ProcessStartTime: m.began})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete {
			show.ServeHTTP(w, r)
			return
		}
		m.slis.latest.Reset()
		m.slis.total.Reset()
		_, _ = io.WriteString(w, "metrics reset\n") // the client is gone, or it is not
	})
}
