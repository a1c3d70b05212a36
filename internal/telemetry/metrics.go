package telemetry

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// The first words of names: ours, and those of the metrics that kube-proxy has too.
const (
	ours   = "kube_ipvs_"
	theirs = "kubeproxy_"
)

// Metrics implements agent.Observer. Each part of the program that has values calls the method for
// them, from any goroutine; a method that takes a function is called at most once. Metrics without
// values are absent.
type Metrics struct {
	puller
	began  time.Time
	served atomic.Pointer[[]model.Family]

	rows     rows
	drains   drains
	sweeps   sweeps
	calls    kernelCalls
	proxy    proxy
	probes   probes
	settings settings
	slis     slis
}

var _ agent.Observer = (*Metrics)(nil)

// New returns metrics in a registry of their own, with those of the Go runtime
// and the process. Of the runtime it is all of them, as with kube-proxy.
func New() *Metrics {
	m := &Metrics{puller: puller{prometheus.NewRegistry()}, began: time.Now()}
	m.registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)))
	m.rows = newRows(m.registry)
	m.newDrains()
	m.sweeps = newSweeps(m.registry)
	m.calls = newCalls(m.registry)
	m.proxy = newProxy(m.registry)
	m.probes = newProbes(m.registry)
	m.settings = newSettings(m.registry)
	m.slis = newSLIs(m.began)
	return m
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ProcessStartTime: m.began})
}

// Pass shows one try to make the kernel what is wanted.
func (m *Metrics) Pass(p agent.Pass) {
	m.rows.pass(p)
	m.proxy.pass(p, families(m))
}

// Cycle counts the rows of one pass.
func (m *Metrics) Cycle(c agent.Cycle) { m.rows.cycle(c) }

// Taken counts rows that other programs changed in nftables, and names the programs. One goroutine
// calls it.
func (m *Metrics) Taken(programs []string, rows int) { m.rows.take(strings.Join(programs, ","), rows) }

// Drift counts the rows an audit found changed.
func (m *Metrics) Drift(d dataplane.Drift) { m.rows.drift(d) }

// Tables sets the sizes of the tables.
func (m *Metrics) Tables(tables []dataplane.TableStatus) { m.rows.tables(tables) }

// Counts sets how Services fare.
func (m *Metrics) Counts(c agent.Counts) {
	m.rows.counts(c)
	m.proxy.counts(c, families(m))
}

// Families sets the families that this node serves; only these have series. It comes before the loop
// runs. Counters start at zero, because rate() ignores the first value of a series. Times start
// absent, because zero would be the year 1970.
func (m *Metrics) Families(served []model.Family) {
	m.served.Store(&served)
	m.proxy.begin(served)
	m.sweeps.begin(served)
}

// families are the families served; none before that is known.
func families(m *Metrics) []model.Family {
	if served := m.served.Load(); served != nil {
		return *served
	}
	return nil
}
