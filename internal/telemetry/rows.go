package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// rows counts the results of rows, and the Services by state.
type rows struct {
	written, failed, drifted, mended, spent, taken *prometheus.CounterVec
	desired, pending, mode, fare                   *prometheus.GaugeVec
	took                                           prometheus.Histogram
	batch                                          *prometheus.HistogramVec
	unbound, conflicts, refused, external          prometheus.Gauge
	// takers are the programs that taken has a series of.
	takers map[string]bool
	// owed are rows that drifted and are not mended yet, by table.
	owed map[string]int
}

func newRows(registry *prometheus.Registry) rows {
	r := rows{
		owed:      map[string]int{},
		takers:    map[string]bool{},
		taken:     counters(ours+"rows_taken_total", "Rows in nftables that another program changed, by its name.", "program"),
		written:   counters(ours+"rows_written_total", "Rows written to the kernel.", "table", "op"),
		failed:    counters(ours+"rows_failed_total", "Failed writes of rows; each is tried again.", "table"),
		spent:     counters(ours+"write_seconds_total", "Duration of the calls that wrote rows to the kernel.", "table"),
		mended:    counters(ours+"rows_mended_total", "Rows that had drifted and are repaired.", "table"),
		drifted:   counters(ours+"rows_drifted_total", "Rows that an audit found changed by another program.", "table"),
		desired:   gauges(ours+"rows_desired", "Desired rows.", "table"),
		pending:   gauges(ours+"rows_pending", "Pending rows, by the operation that is needed.", "table", "op"),
		mode:      gauges(ours+"proxy_mode", "1 for the pair of the requested and the active mode.", "requested", "active"),
		fare:      gauges(ours+"services", "Services by state.", "state"),
		unbound:   gauge(ours+"unbound_addresses", "Addresses of Services that are not bound, because another machine needs them."),
		external:  gauge(ours+"external_ip_services", "Services with external IPs that are served. Each user who may write Services can claim any external IP (CVE-2020-8554)."),
		conflicts: gauge(ours+"address_conflicts", "Frontends that a Service wants and another Service has."),
		refused:   gauge(ours+"refused_annotations", "Services with at least one annotation that has no effect."),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: ours + "apply_duration_seconds", Help: "Duration of one pass that wrote rows.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10), // 0.1 ms to 26 s
		}),
	}
	r.batch = histograms(ours+"batch_rows", "Rows of a table that one pass wrote, failed ones included.", prometheus.ExponentialBuckets(1, 4, 10), "table") // 1 to 262,144
	registry.MustRegister(r.written, r.failed, r.drifted, r.mended, r.spent, r.taken, r.desired, r.pending, r.mode, r.fare, r.unbound, r.conflicts, r.refused, r.external, r.took, r.batch)
	return r
}

// Mode sets the mode that was asked for and the one that runs.
func (m *Metrics) Mode(requested, active string) {
	m.rows.mode.Reset()
	m.rows.desired.Reset() // another mode has other tables
	m.rows.pending.Reset()
	m.rows.mode.WithLabelValues(requested, active).Set(1)
}

func (r *rows) cycle(c agent.Cycle) {
	r.took.Observe(c.Took.Seconds())
	for _, t := range c.Rows {
		r.written.WithLabelValues(t.Table, "add").Add(float64(t.Adds))
		r.written.WithLabelValues(t.Table, "update").Add(float64(t.Updates))
		r.written.WithLabelValues(t.Table, "delete").Add(float64(t.Deletes))
		r.failed.WithLabelValues(t.Table).Add(float64(t.Failed))
		r.spent.WithLabelValues(t.Table).Add(t.Took.Seconds())
		if n := t.Adds + t.Updates + t.Deletes + t.Failed; n > 0 {
			r.batch.WithLabelValues(t.Table).Observe(float64(n))
		}
	}
}

func (r *rows) drift(d dataplane.Drift) {
	for table, n := range d {
		r.drifted.WithLabelValues(table).Add(float64(n))
		r.owed[table] += n
	}
}

// mostTakers bounds the series by program.
const mostTakers = 20

func (r *rows) take(program string, n int) {
	if !r.takers[program] && len(r.takers) >= mostTakers {
		program = othersName
	}
	r.takers[program] = true
	r.taken.WithLabelValues(program).Add(float64(n))
}

// pass counts what had drifted as mended when nothing is left to do.
func (r *rows) pass(p agent.Pass) {
	if !p.OK {
		return
	}
	for table, n := range r.owed {
		r.mended.WithLabelValues(table).Add(float64(n))
	}
	clear(r.owed)
}

func (r *rows) tables(tables []dataplane.TableStatus) {
	for _, t := range tables {
		r.desired.WithLabelValues(t.Table).Set(float64(t.Desired))
		r.pending.WithLabelValues(t.Table, "update").Set(float64(t.Updates))
		r.pending.WithLabelValues(t.Table, "delete").Set(float64(t.Deletes))
		r.mended.WithLabelValues(t.Table)
		r.drifted.WithLabelValues(t.Table) // there before the first drift, or a rate would not see it
	}
}

func (r *rows) counts(c agent.Counts) {
	r.fare.WithLabelValues("served").Set(float64(c.Services))
	r.fare.WithLabelValues("skipped").Set(float64(c.Skipped))
	r.fare.WithLabelValues("noted").Set(float64(c.Noted))
	r.unbound.Set(float64(c.Unbound))
	r.conflicts.Set(float64(c.Conflicts))
	r.external.Set(float64(c.External))
	r.refused.Set(float64(c.RefusedAnnotations))
}
