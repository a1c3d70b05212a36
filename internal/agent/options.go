package agent

import (
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Catalog is the part of the catalog that the loop uses; *catalog.Catalog is one.
type Catalog interface {
	Wake() <-chan time.Time
	Listing() bool
	Synced() bool
	Take() catalog.Batch
	TakeReady(limit int, first func(*model.Service) bool) (b catalog.Batch, more bool)
	Matching(concerned func(*model.Service, []*model.Slice) bool) []catalog.Input
}

// A Compiler turns one Service into frontends; *plan.Compiler is one.
type Compiler interface {
	Compile(id model.ServiceID, svc *model.Service, slices []model.Slice) model.ServicePlan
	// Explain returns, for each endpoint, whether it gets connections and why.
	Explain(id model.ServiceID, svc *model.Service, slices []model.Slice) []model.PortStory
}

// An Observer receives what happened. The loop calls it between two steps, and it must not block.
type Observer interface {
	Pass(Pass)
	Cycle(Cycle)
	Drift(dataplane.Drift)
	Tables([]dataplane.TableStatus)
	Drains(dataplane.Drains)
	Counts(Counts)
}

// Options join an Agent to its neighbours.
type Options struct {
	Log     *zap.Logger
	Catalog Catalog
	Mode    dataplane.Dataplane
	// NodeName is the name of this node, for status.
	NodeName string
	// Compiler makes the compiler for a host, and Affects a function that reports which Services are
	// compiled differently for another host.
	Compiler func(host model.Host) Compiler
	Affects  func(before, now model.Host) func(*model.Service, []*model.Slice) bool
	// Host reads the addresses of this machine, and NodePorts selects those on which NodePorts answer; nil
	// selects none.
	Host      HostReader
	NodePorts func(model.Host) []netip.Addr
	// APIServers returns the addresses at which the API server is reached, sorted; nil is a node without
	// one. Call HostChanged when they change.
	APIServers func() []netip.Addr
	// DNSServices are namespace/name of Services that are served first when a node starts.
	DNSServices []string
	// PodRanges are the ranges of pods of the whole cluster, where they are known.
	PodRanges []netip.Prefix
	// About returns, for Status, the program, its machine and the default scheduler; nil leaves them out.
	About func() About
	// Unreadable returns, for Status, the input that cannot be read and whose last good content is in
	// force; nil is none.
	Unreadable func() []string
	// Remember keeps, for the next process, the addresses that Services claim and a Node has or had; nil
	// does not.
	Remember func(map[netip.Addr]string)
	// LocalPod reports whether an address counts as that of a pod of this node, where addresses decide
	// that; nil is never.
	LocalPod func(netip.Addr, model.Node) bool
	Probes   Probes
	// Prober probes the endpoints of the API servers; nil probes none. Call SetFailing when its answer
	// changes.
	Prober Prober
	Receivers
	Periods
}

// Receivers get what the loop knows. The loop calls them, so none may block.
type Receivers struct {
	// Health, Relay and Events may be nil.
	Health   Health
	Relay    Relay
	Observer Observer
	Events   EventSink
	// Ready is called once, when the first sync is done; nil is not.
	Ready func()
}

// Periods are the times of the loop; 0 is the default of each.
type Periods struct {
	// Coalesce is how long after a batch the next one waits for more changes, so that a burst becomes one
	// batch.
	Coalesce time.Duration
	// MinPeriod is the least time between two batches (kube-proxy's minSyncPeriod); the first change after a
	// longer rest does not wait for it. Its default is none.
	MinPeriod time.Duration
	// AuditPeriod is the time from the beginning of one audit to that of the next; negative is neither
	// audits nor samples.
	AuditPeriod time.Duration
	// RetryMin and RetryMax bound the backoff of rows that failed.
	RetryMin, RetryMax time.Duration
}

// The defaults of Periods.
const (
	DefaultCoalesce    = 5 * time.Millisecond
	DefaultAuditPeriod = 30 * time.Second
	DefaultRetryMin    = 100 * time.Millisecond
	DefaultRetryMax    = 30 * time.Second
)

func (p *Periods) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&p.Coalesce, DefaultCoalesce}, {&p.AuditPeriod, DefaultAuditPeriod},
		{&p.RetryMin, DefaultRetryMin}, {&p.RetryMax, DefaultRetryMax},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}
