package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// proxy has the metrics of kube-proxy that the loop feeds. kube-proxy has a loop
// for each family; here one loop serves both, so what it tells shows under each.
type proxy struct {
	sync, programming  *prometheus.HistogramVec
	succeeded, noLocal *prometheus.GaugeVec
}

func newProxy(registry *prometheus.Registry) proxy {
	p := proxy{
		sync: histograms(theirs+"sync_proxy_rules_duration_seconds",
			"Duration of one pass over all desired rows, failed passes included.",
			prometheus.ExponentialBuckets(0.001, 2, 15), "ip_family"),
		programming: histograms(theirs+"network_programming_duration_seconds",
			"Time from the change of a pod or Service in the cluster until the kernel of this node has it.",
			programmingBuckets(), "ip_family"),
		succeeded: gauges(theirs+"sync_proxy_rules_last_timestamp_seconds",
			"Time of the last pass after which no row was pending, in seconds since 1970.", "ip_family"),
		noLocal: gauges(theirs+"sync_proxy_rules_no_local_endpoints_total",
			"Services with a traffic policy Local that have endpoints, but none on this node.", "traffic_policy", "ip_family"),
	}
	registry.MustRegister(p.sync, p.programming, p.succeeded, p.noLocal)
	return p
}

// programmingBuckets are fine where the objective of SIG Scalability lies.
func programmingBuckets() []float64 {
	return slices.Concat(prometheus.LinearBuckets(0.25, 0.25, 2), prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7))
}

func (p *proxy) begin(served []model.Family) {
	for _, f := range served {
		p.sync.WithLabelValues(f.String())
		p.programming.WithLabelValues(f.String())
	}
}

func (p *proxy) pass(pass agent.Pass, served []model.Family) {
	end := pass.At.Add(pass.Took)
	for _, f := range served {
		p.sync.WithLabelValues(f.String()).Observe(pass.Took.Seconds())
		if pass.OK {
			p.succeeded.WithLabelValues(f.String()).Set(seconds(end))
		}
	}
	for _, t := range pass.Triggers {
		if !slices.Contains(served, t.Family) {
			continue
		}
		// The clock behind the trigger is another machine's and may be ahead. A sum
		// that falls would read as a restart.
		took := max(0, end.Sub(t.At))
		p.programming.WithLabelValues(t.Family.String()).Observe(took.Seconds())
	}
}

func (p *proxy) counts(c agent.Counts, served []model.Family) {
	for _, f := range served {
		n := c.NoLocal4
		if f == model.IPv6 {
			n = c.NoLocal6
		}
		p.noLocal.WithLabelValues("internal", f.String()).Set(float64(n.Internal))
		p.noLocal.WithLabelValues("external", f.String()).Set(float64(n.External))
	}
}
