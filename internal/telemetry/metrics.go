package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// Metrics implements agent.Observer.
type Metrics struct {
	registry *prometheus.Registry
	written  *prometheus.CounterVec
	failed   *prometheus.CounterVec
	drifted  *prometheus.CounterVec
	desired  *prometheus.GaugeVec
	pending  *prometheus.GaugeVec
	took     prometheus.Histogram
	mode     *prometheus.GaugeVec
	services *prometheus.GaugeVec
	unbound  prometheus.Gauge
	conflict prometheus.Gauge
}

// New returns metrics in a registry of their own, with those of the Go runtime
// and the process.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		written:  counters("rows_written_total", "Rows written to the kernel.", "table", "op"),
		failed:   counters("rows_failed_total", "Writes of rows that failed; each is tried again.", "table"),
		drifted:  counters("rows_drifted_total", "Rows that something else changed, found by an audit.", "table"),
		desired:  gauges("rows_desired", "Rows wanted in the kernel.", "table"),
		pending:  gauges("rows_pending", "Rows that are not as wanted, by what is to be done.", "table", "op"),
		mode:     gauges("proxy_mode", "1 for the mode that was asked for and the one that runs.", "requested", "active"),
		services: gauges("services", "Services by what becomes of them.", "state"),
		unbound:  gauge("unbound_addresses", "Addresses of Services that belong to a node and are not bound."),
		conflict: gauge("address_conflicts", "Frontends that a Service wants and another one has."),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kube_ipvs_apply_duration_seconds", Help: "Time of one pass that wrote rows.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10), // 0.1 ms to 26 s
		}),
	}
	m.registry.MustRegister(m.written, m.failed, m.drifted, m.desired, m.pending, m.mode, m.took,
		m.services, m.unbound, m.conflict,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kube_ipvs_" + name, Help: help}, labels)
}

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kube_ipvs_" + name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "kube_ipvs_" + name, Help: help})
}

// Mode says which mode was asked for and which one runs.
func (m *Metrics) Mode(requested, active string) {
	m.mode.Reset()
	m.mode.WithLabelValues(requested, active).Set(1)
}

// HealthPorts has the sockets for health checks counted whenever somebody asks.
func (m *Metrics) HealthPorts(count func() (open, failed int)) {
	for state, pick := range map[string]func(open, failed int) int{
		"open":   func(open, _ int) int { return open },
		"failed": func(_, failed int) int { return failed },
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kube_ipvs_health_check_sockets", Help: "Sockets for the health checks of load balancers, by state.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(pick(count())) }))
	}
}

// Pass counts every pass.
func (m *Metrics) Pass(agent.Pass) {}

// Cycle counts the rows of one pass.
func (m *Metrics) Cycle(c agent.Cycle) {
	m.took.Observe(c.Took.Seconds())
	for _, t := range c.Rows {
		m.written.WithLabelValues(t.Table, "add").Add(float64(t.Adds))
		m.written.WithLabelValues(t.Table, "update").Add(float64(t.Updates))
		m.written.WithLabelValues(t.Table, "delete").Add(float64(t.Deletes))
		m.failed.WithLabelValues(t.Table).Add(float64(t.Failed))
	}
}

// Drift counts the rows an audit found changed.
func (m *Metrics) Drift(d dataplane.Drift) {
	for table, n := range d {
		m.drifted.WithLabelValues(table).Add(float64(n))
	}
}

// Tables sets the sizes of the tables.
func (m *Metrics) Tables(tables []dataplane.TableStatus) {
	for _, t := range tables {
		m.desired.WithLabelValues(t.Table).Set(float64(t.Desired))
		m.pending.WithLabelValues(t.Table, "update").Set(float64(t.Updates))
		m.pending.WithLabelValues(t.Table, "delete").Set(float64(t.Deletes))
	}
}

// Counts sets how Services fare.
func (m *Metrics) Counts(c agent.Counts) {
	m.services.WithLabelValues("served").Set(float64(c.Services))
	m.services.WithLabelValues("skipped").Set(float64(c.Skipped))
	m.services.WithLabelValues("noted").Set(float64(c.Noted))
	m.unbound.Set(float64(c.Unbound))
	m.conflict.Set(float64(c.Conflicts))
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
