package telemetry

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	client "k8s.io/client-go/tools/metrics"
)

// RESTClient has the metrics of client-go about requests to the API server, under the
// names that every Kubernetes component has for it. It comes before the first client
// is made. client-go has one set of hooks for the process, so these figures are those
// of the process, whichever Metrics shows them.
func (m *Metrics) RESTClient() { m.registry.MustRegister(restClientOnce()...) }

var restClientOnce = sync.OnceValue(func() []prometheus.Collector {
	r := newRESTClient()
	client.Register(r.hooks())
	return r.collectors()
})

// restClient are the metrics of k8s.io/component-base/metrics/prometheus/restclient.
// Two of that package are not here: the time of DNS look-ups, which it never shows, and
// the calls of the policy for exec plugins, which client-go never reports.
type restClient struct {
	duration, limited, sent, received                          *prometheus.HistogramVec
	requests, retries, plugins, transports, authorities, freed *prometheus.CounterVec
	expiry                                                     *expiry
	rotation                                                   prometheus.Histogram
	cached                                                     prometheus.Gauge
	ended                                                      prometheus.Counter
}

// Buckets of durations in seconds and of sizes in bytes.
var (
	requestSeconds = []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	requestBytes   = []float64{64, 256, 512, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24}
	// certificateAges are 10 minutes, 30 minutes, an hour, 4 hours, a day, a week, then
	// 1, 3, 6 months of 30 days, a year of 360 days, and four.
	certificateAges = []float64{600, 1800, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000}
)

func newRESTClient() *restClient {
	const name = "rest_client_"
	return &restClient{
		duration: histograms(name+"request_duration_seconds", "Time of requests to the API server.", requestSeconds, "verb", "host"),
		limited:  histograms(name+"rate_limiter_duration_seconds", "Time that requests waited for the client's own rate limit.", requestSeconds, "verb", "host"),
		sent:     histograms(name+"request_size_bytes", "Size of requests.", requestBytes, "verb", "host"),
		received: histograms(name+"response_size_bytes", "Size of responses.", requestBytes, "verb", "host"),
		requests: counters(name+"requests_total", "Requests by HTTP status, method and host.", "code", "method", "host"),
		retries:  counters(name+"request_retries_total", "Retried requests, by HTTP status, verb and host.", "code", "verb", "host"),
		expiry:   &expiry{},
		rotation: prometheus.NewHistogram(prometheus.HistogramOpts{Name: name + "exec_plugin_certificate_rotation_age",
			Help: "Age in seconds of client certificates of exec plugins when they were replaced.", Buckets: certificateAges}),
		plugins: counters(name+"exec_plugin_call_total", "Calls of exec plugins by exit code and outcome.", "code", "call_status"),
		cached:  gauge(name+"transport_cache_entries", "Cached transports that clients share."),
		transports: counters(name+"transport_create_calls_total",
			"Requests for a transport, by result. hit: from the cache; miss: a new one; miss-gc: a new one because the cached one was collected; uncacheable: not cached.", "result"),
		authorities: counters(name+"transport_ca_reload_total", "Reads of the certificate authority file, by result and reason.", "result", "reason"),
		ended: prometheus.NewCounter(prometheus.CounterOpts{Name: name + "transport_cert_rotation_gc_calls_total",
			Help: "Certificate rotations that ended because their transport was collected."}),
		freed: counters(name+"transport_cache_gc_calls_total", "Collected transports by what the cache did with their entry: deleted or skipped.", "result"),
	}
}

func (r *restClient) collectors() []prometheus.Collector {
	ttl := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rest_client_exec_plugin_ttl_seconds",
		Help: "Time until the first client certificate of an exec plugin expires; +Inf without one."}, r.expiry.ttl)
	return []prometheus.Collector{r.duration, r.limited, r.sent, r.received, r.requests, r.retries, ttl, r.rotation,
		r.plugins, r.cached, r.transports, r.authorities, r.ended, r.freed}
}

func (r *restClient) hooks() client.RegisterOpts {
	return client.RegisterOpts{
		RequestLatency: latency{r.duration}, RateLimiterLatency: latency{r.limited},
		RequestSize: size{r.sent}, ResponseSize: size{r.received},
		RequestResult: result{r.requests}, RequestRetry: retry{r.retries},
		ClientCertExpiry: r.expiry, ClientCertRotationAge: age{r.rotation}, ExecPluginCalls: calls{r.plugins},
		TransportCacheEntries: entries{r.cached}, TransportCreateCalls: outcome{r.transports}, TransportCacheGCCalls: outcome{r.freed},
		TransportCAReloads: reloads{r.authorities}, TransportCertRotationGCCalls: ends{r.ended},
	}
}

// expiry is when the first client certificate of an exec plugin expires.
type expiry struct{ at atomic.Pointer[time.Time] }

// Set implements client.ExpiryMetric.
func (e *expiry) Set(at *time.Time) { e.at.Store(at) }

func (e *expiry) ttl() float64 {
	if at := e.at.Load(); at != nil {
		return time.Until(*at).Seconds()
	}
	return math.Inf(1)
}
