package telemetry

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The hooks of client-go, each around the metric it feeds.
type (
	latency struct{ *prometheus.HistogramVec }
	size    struct{ *prometheus.HistogramVec }
	result  struct{ *prometheus.CounterVec }
	retry   struct{ *prometheus.CounterVec }
	age     struct{ prometheus.Histogram }
	calls   struct{ *prometheus.CounterVec }
	entries struct{ prometheus.Gauge }
	outcome struct{ *prometheus.CounterVec }
	reloads struct{ *prometheus.CounterVec }
	ends    struct{ prometheus.Counter }
)

// Observe implements client.LatencyMetric.
func (l latency) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	l.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}

// Observe implements client.SizeMetric.
func (s size) Observe(_ context.Context, verb, host string, bytes float64) {
	s.WithLabelValues(verb, host).Observe(bytes)
}

// Increment implements client.ResultMetric.
func (r result) Increment(_ context.Context, code, method, host string) {
	r.WithLabelValues(code, method, host).Inc()
}

// IncrementRetry implements client.RetryMetric.
func (r retry) IncrementRetry(_ context.Context, code, verb, host string) {
	r.WithLabelValues(code, verb, host).Inc()
}

// Observe implements client.DurationMetric.
func (a age) Observe(d time.Duration) { a.Histogram.Observe(d.Seconds()) }

// Increment implements client.CallsMetric.
func (c calls) Increment(code int, status string) {
	c.WithLabelValues(strconv.Itoa(code), status).Inc()
}

// Observe implements client.TransportCacheMetric.
func (e entries) Observe(n int) { e.Set(float64(n)) }

// Increment implements client.TransportCreateCallsMetric and
// client.TransportCacheGCCallsMetric.
func (o outcome) Increment(result string) { o.WithLabelValues(result).Inc() }

// Increment implements client.TransportCAReloadsMetric.
func (r reloads) Increment(result, reason string) { r.WithLabelValues(result, reason).Inc() }

// Increment implements client.TransportCertRotationGCCallsMetric.
func (e ends) Increment() { e.Inc() }
