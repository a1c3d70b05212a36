package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// ServiceSources is where the metrics by Service come from. None is asked by the loop,
// and none of the readings of the kernel disturbs it: they have handles of their own.
type ServiceSources struct {
	// Traffic reads what all virtual servers have carried. In a mode without any it
	// fails with ErrNoServers, and the metrics are absent.
	Traffic func(ctx context.Context, visit func(model.FrontendKey, VirtualServer)) error
	// Loads reads what their destinations have at the moment.
	Loads func(ctx context.Context, visit func(model.FrontendKey, Load)) error
	// Services and ServicesInfo tell whose servers they are; Changes whether that may be another
	// answer than before.
	Services     func(ctx context.Context) ([]model.ServiceID, error)
	ServicesInfo func(ctx context.Context, ids []model.ServiceID, visit func(agent.ServiceInfo)) error
	Changes      func() catalog.Changes
	// Most is how many Services have series of their own.
	Most int
}

// ErrNoServers means that the mode that runs has no virtual servers.
var ErrNoServers = errors.New("no virtual servers in this mode")

const (
	// serviceRest is how long a reading is shown: two scrapers, or a person beside one,
	// cost as much as one.
	serviceRest = 10 * time.Second
	// servicePatience bounds a reading, and servicePatienceNames the part of it that waits
	// for the loop: one that is stuck or busy has the names of before.
	servicePatience      = 5 * time.Second
	servicePatienceNames = 2 * time.Second
	// nameRest is how old names may be although no event reported a change: an address
	// of the node that comes or goes is no change of a Service.
	nameRest = time.Minute
)

// services shows the traffic of each Service. One scrape at a time reads; all others get
// what it read.
type services struct {
	sources ServiceSources

	mu       sync.Mutex
	counters serviceCounters
	read     time.Time // when the kernel was read last, whatever came of it
	known    bool      // it was, and told what servers carried
	loaded   bool      // and what they had
	named    time.Time // when names were read last
	stamp    catalog.Changes
	failed   map[string]uint64
}

// The subjects of a read, as the label of a failed read.
const (
	ofNames       = "names"
	ofTraffic     = "traffic"
	ofConnections = "connections"
)

// Services shows what each Service carries, up to so many of them, and all others together. It
// reads at a scrape, at most once in ten seconds.
func (m *Metrics) Services(s ServiceSources) {
	m.registry.MustRegister(&services{
		sources: s, counters: newServiceCounters(s.Most), failed: map[string]uint64{ofNames: 0, ofTraffic: 0, ofConnections: 0},
	})
}

func serviceDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(ours+name, help, labels, nil)
}

var (
	serviceConnections = serviceDesc("service_connections_total", "Connections to destinations of a Service, as counted by the kernel.", "namespace", "service")
	servicePackets     = serviceDesc("service_packets_total", "Packets of a Service, in from clients and out to them.", "namespace", "service", "direction")
	serviceBytes       = serviceDesc("service_bytes_total", "Bytes of a Service, in from clients and out to them, with headers from IP on.", "namespace", "service", "direction")
	serviceRemembered  = serviceDesc("service_connections", "Connections of a Service in the kernel's connection table: active are established, inactive are all others.", "namespace", "service", "state")
	serviceEndpoints   = serviceDesc("service_endpoints", "Endpoints of a Service by state. serving: gets new connections; draining: only keeps existing ones until the drain time ends; kept: keeps them without a time limit.", "namespace", "service", "state")
	serviceInfo        = serviceDesc("service_info", "1 for each scheduler that virtual servers of a Service have.", "namespace", "service", "scheduler")
	servicesSummed     = serviceDesc("services_summed", "Services that have no series of their own and are shown together as (others): see --service-metrics.")
	serviceFailed      = serviceDesc("service_reads_failed_total", "Failed reads for the metrics by Service. Until a read succeeds, these metrics are absent or have outdated names.", "of")
)

// Describe implements prometheus.Collector.
func (s *services) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{serviceConnections, servicePackets, serviceBytes, serviceRemembered, serviceEndpoints, serviceInfo, servicesSummed, serviceFailed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *services) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for of, n := range s.failed {
		counter(serviceFailed, n, of)
	}
	if !s.known {
		return
	}
	gauge(servicesSummed, float64(s.counters.summed))
	for a := range s.counters.accounts() {
		ns, name := a.namespace, a.name
		counter(serviceConnections, a.carried.Connections, ns, name)
		counter(servicePackets, a.carried.PacketsIn, ns, name, "in")
		counter(servicePackets, a.carried.PacketsOut, ns, name, "out")
		counter(serviceBytes, a.carried.BytesIn, ns, name, "in")
		counter(serviceBytes, a.carried.BytesOut, ns, name, "out")
		gauge(serviceEndpoints, float64(a.serving), ns, name, "serving")
		for _, scheduler := range a.schedulers {
			gauge(serviceInfo, 1, ns, name, scheduler)
		}
		if !s.loaded || a.partial {
			continue // an unknown value is absent
		}
		gauge(serviceRemembered, float64(a.active), ns, name, "active")
		gauge(serviceRemembered, float64(a.inactive), ns, name, "inactive")
		gauge(serviceEndpoints, float64(a.kept), ns, name, "kept")
		gauge(serviceEndpoints, float64(a.draining), ns, name, "draining")
	}
}

// refresh reads again what is too old.
func (s *services) refresh() {
	if !s.read.IsZero() && time.Since(s.read) < serviceRest {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), servicePatience)
	defer cancel()
	s.known, s.loaded = false, false
	if s.rename(ctx) {
		s.known = s.count(ofTraffic, s.carried(ctx))
	}
	if s.known {
		s.loaded = s.count(ofConnections, s.loads(ctx))
	}
	s.read = time.Now()
}

// count books a failure; that a mode has no servers is none.
func (s *services) count(of string, err error) (ok bool) {
	if err != nil && !errors.Is(err, ErrNoServers) {
		s.failed[of]++
	}
	return err == nil
}

func (s *services) carried(ctx context.Context) error {
	round := s.counters.begin()
	if err := s.sources.Traffic(ctx, round.server); err != nil {
		return err
	}
	round.end()
	return nil
}

func (s *services) loads(ctx context.Context) error {
	round := s.counters.beginLoads()
	if err := s.sources.Loads(ctx, round.load); err != nil {
		return err
	}
	round.end()
	return nil
}

// rename learns whose servers they are, where that may have changed. While the loop does not
// answer, the previous names are used; without any names no series are shown.
func (s *services) rename(ctx context.Context) (ok bool) {
	now := s.sources.Changes()
	if s.fresh(now) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, servicePatienceNames)
	defer cancel()
	var known []agent.ServiceInfo
	ids, err := s.sources.Services(ctx)
	if err == nil {
		known = make([]agent.ServiceInfo, 0, len(ids))
		err = s.sources.ServicesInfo(ctx, ids, func(k agent.ServiceInfo) { known = append(known, k) })
	}
	if !s.count(ofNames, err) {
		return !s.named.IsZero()
	}
	s.counters.rename(known)
	s.named, s.stamp = time.Now(), now
	return true
}

// fresh tells that names cannot be others than those that were read. If changes were waiting for
// the loop during that read, it is unknown whether the loop had taken them.
func (s *services) fresh(now catalog.Changes) bool {
	return !s.named.IsZero() && time.Since(s.named) < nameRest && now == s.stamp && s.stamp.PendingServices+s.stamp.PendingSlices == 0
}
