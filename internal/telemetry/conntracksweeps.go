package telemetry

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// sweeps is how flows of connection tracking fare whose way is gone. kube-proxy has
// the first two.
type sweeps struct {
	took    *prometheus.HistogramVec
	deleted *prometheus.CounterVec
	failed  prometheus.Counter
}

func newSweeps(registry *prometheus.Registry) sweeps {
	s := sweeps{
		took: histograms(theirs+"conntrack_reconciler_sync_duration_seconds",
			"Duration of one removal of stale flows from connection tracking, failed ones included.",
			prometheus.ExponentialBuckets(0.001, 2, 15), "ip_family"),
		deleted: counters(theirs+"conntrack_reconciler_deleted_entries_total", "Stale flows deleted from connection tracking.", "ip_family"),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: ours + "conntrack_sweeps_failed_total", Help: "Failed removals of stale flows from connection tracking.",
		}),
	}
	registry.MustRegister(s.took, s.deleted, s.failed)
	return s
}

func (s *sweeps) begin(served []model.Family) {
	for _, f := range served {
		s.took.WithLabelValues(f.String())
		s.deleted.WithLabelValues(f.String())
	}
}

// Swept shows one sweep of connection tracking: how long it took, how many flows went,
// even where it failed before its end. Any goroutine may call it.
func (m *Metrics) Swept(family model.Family, took time.Duration, deleted int, err error) {
	if err != nil {
		m.sweeps.failed.Inc()
	}
	if slices.Contains(families(m), family) {
		m.sweeps.took.WithLabelValues(family.String()).Observe(took.Seconds())
		m.sweeps.deleted.WithLabelValues(family.String()).Add(float64(max(0, deleted)))
	}
}
