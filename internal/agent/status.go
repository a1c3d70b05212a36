package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// Status is the state of the loop, for people and programs. Field names in JSON
// are kept for good.
type Status struct {
	Node string `json:"node"`
	Mode string `json:"mode"`
	// Synced: every source has delivered. Complete: and could read all of it.
	// Ready: and everything wanted was in the kernel at least once.
	Synced   bool `json:"synced"`
	Complete bool `json:"complete"`
	Ready    bool `json:"ready"`
	// Unreadable is input that cannot be read as it is now, with the reason. Its last good content
	// is served, so that Complete may be true all the same.
	Unreadable []string `json:"unreadable,omitempty"`
	// Services have frontends, Skipped ones have none, for a reason, and Noted
	// ones lack something they ask for.
	Services int `json:"services"`
	Skipped  int `json:"skipped"`
	Noted    int `json:"noted"`
	// RefusedAnnotations are Services with an annotation that is not followed, their own
	// or that of a slice or a Node behind them.
	RefusedAnnotations int `json:"refusedAnnotations"`
	// Unbound addresses of Services are served and not bound, for another machine needs
	// them or this one uses them itself. Conflicts are frontends
	// that a Service wants and another one has. Both count once for each Service.
	Unbound   int `json:"unboundAddresses"`
	Conflicts int `json:"addressConflicts"`
	// Draining destinations have lost their endpoint and keep their connections.
	Draining int `json:"draining"`
	// Climbing destinations are new, and get their whole weight by and by.
	Climbing int `json:"climbing"`
	// Trash is how many deleted destinations the kernel may still keep.
	Trash int `json:"trash"`
	// NodePorts are the addresses on which NodePorts answer, HealthChecks the
	// number of Services with a health-check port.
	NodePorts    []netip.Addr `json:"nodePortAddresses"`
	HealthChecks int          `json:"healthChecks"`
	// Healthy: see Agent.Healthy.
	Healthy bool `json:"healthy"`

	Tables []dataplane.TableStatus `json:"tables"`
	// Cycles counts the passes that wrote rows, Written those rows by table.
	Cycles  uint64            `json:"cycles"`
	Written map[string]uint64 `json:"written"`
	// Failures is how often in a row applying has failed, LastError why.
	Failures  uint64 `json:"failures"`
	LastError string `json:"lastError,omitempty"`
	// Audits counts those that are complete, Drifted the rows that they and samples found
	// changed.
	Audits  uint64 `json:"audits"`
	Drifted uint64 `json:"drifted"`
	// AuditPeriod is the time from one audit to the next in seconds, 0 for none.
	AuditPeriod float64 `json:"auditRestSeconds"`
	// LastAudit is the latest one that is complete.
	LastAudit *AuditRecord `json:"lastAudit,omitempty"`
	// AuditError is what the latest audit, or the one in progress, could not read: drift
	// there is not seen.
	AuditError string `json:"auditError,omitempty"`
	// SweepError is why something stays that another mode left.
	SweepError string `json:"sweepError,omitempty"`
	// Last is the latest cycle that wrote something.
	Last *Cycle `json:"last,omitempty"`
}

// Pass is one try to make the kernel what is wanted, whether or not it had anything
// to write.
type Pass struct {
	At   time.Time
	Took time.Duration
	// OK: nothing is left to do.
	OK bool
	// Triggers are when the changes of endpoints began that were written, but for rows
	// that the kernel refuses.
	Triggers []catalog.Trigger
}

// Cycle is one pass that wrote something, or tried to.
type Cycle struct {
	At   time.Time     `json:"at"`
	Took time.Duration `json:"tookNanoseconds"`
	// Services were compiled for it; 0 for a repair or a retry.
	Services int `json:"services"`
	// Rows are what was written, by table.
	Rows []TableRows `json:"rows"`
	// Pending rows were left for later.
	Pending int `json:"pending"`
}

// TableRows counts the rows written to one table.
type TableRows struct {
	Table   string `json:"table"`
	Adds    int    `json:"adds"`
	Updates int    `json:"updates"`
	Deletes int    `json:"deletes"`
	Failed  int    `json:"failed"`
	// Took is the time of the calls that wrote them.
	Took time.Duration `json:"tookNanoseconds"`
}

// Counts says how Services fare; see Status for the meaning of each.
type Counts struct {
	Services, Skipped, Noted, RefusedAnnotations, Unbound, Conflicts int
	// External are Services that are served by external IPs.
	External int
	// NoLocal4 and NoLocal6 are Services that a policy Local leaves without backends
	// on this node though they have some elsewhere, by family.
	NoLocal4, NoLocal6 NoLocal
}

// NoLocal counts by the policy that is Local.
type NoLocal struct{ Internal, External int }

func (n NoLocal) plus(o NoLocal, sign int) NoLocal {
	return NoLocal{n.Internal + sign*o.Internal, n.External + sign*o.External}
}

// plus adds what one Service adds, or with a sign of -1 takes it away again.
func (c Counts) plus(o Counts, sign int) Counts {
	return Counts{
		Services: c.Services + sign*o.Services, Skipped: c.Skipped + sign*o.Skipped, Noted: c.Noted + sign*o.Noted,
		RefusedAnnotations: c.RefusedAnnotations + sign*o.RefusedAnnotations,
		Unbound:            c.Unbound + sign*o.Unbound, Conflicts: c.Conflicts + sign*o.Conflicts, External: c.External + sign*o.External,
		NoLocal4: c.NoLocal4.plus(o.NoLocal4, sign), NoLocal6: c.NoLocal6.plus(o.NoLocal6, sign),
	}
}

// stats is what the loop counts.
type stats struct {
	ready     bool
	cycles    uint64
	services  int // compiled since the last cycle
	written   map[string]uint64
	failures  uint64
	lastError error
	audits    uint64
	// auditError is what could not be read of late.
	auditError error
	// sweepError is why something of another mode stays.
	sweepError error
	drifted    uint64
	last       *Cycle
}

func (s *stats) taken(services int) { s.services += services }

// record notes what one pass did. A pass that did nothing is no cycle.
func (a *Agent) record(start, ended time.Time, r dataplane.Result) {
	a.opts.Observer.Tables(a.mode.Tables())
	a.opts.Observer.Counts(a.counts)
	services := a.stats.services
	a.stats.services = 0
	if len(r.Stages) == 0 {
		return
	}
	c := Cycle{At: start, Took: ended.Sub(start), Services: services, Pending: r.Pending}
	if a.stats.written == nil {
		a.stats.written = map[string]uint64{}
	}
	for _, s := range r.Stages {
		c.Rows = append(c.Rows, TableRows{s.Stage, s.Adds, s.Updates, s.Deletes, s.Failed, s.Took})
		a.stats.written[s.Stage] += uint64(s.Written())
	}
	if r.Total().Written() > 0 {
		a.stats.cycles++
		a.logUpdate(c)
	}
	a.stats.last = &c
	a.opts.Observer.Cycle(c)
}

// Status reads the state between two cycles.
func (a *Agent) Status(ctx context.Context) (Status, error) {
	var s Status
	if err := a.Do(ctx, func(context.Context) { s = a.status() }); err != nil {
		return Status{}, err // the loop may be writing s just now
	}
	return s, nil
}

func (a *Agent) status() Status {
	drains := a.mode.Drains()
	s := Status{
		Node: a.opts.NodeName, Mode: a.mode.Name(),
		Synced: a.synced, Complete: a.complete, Ready: a.stats.ready,
		Services: a.counts.Services, Skipped: a.counts.Skipped, Noted: a.counts.Noted,
		RefusedAnnotations: a.counts.RefusedAnnotations, Unbound: a.counts.Unbound, Conflicts: a.counts.Conflicts,
		Draining: drains.Now, Climbing: drains.Climbing, Trash: drains.Trash.Len(time.Now()),
		NodePorts: a.host.NodePorts, HealthChecks: len(a.health.told), Healthy: a.Healthy(),
		Tables: a.mode.Tables(),
		Cycles: a.stats.cycles, Written: map[string]uint64{},
		Failures: a.stats.failures, Audits: a.stats.audits, Drifted: a.stats.drifted, AuditPeriod: max(0, a.opts.AuditPeriod).Seconds(), LastAudit: a.audits.record(), Last: a.stats.last,
	}
	if a.opts.Unreadable != nil {
		s.Unreadable = a.opts.Unreadable()
	}
	for table, n := range a.stats.written {
		s.Written[table] = n
	}
	if a.stats.lastError != nil {
		s.LastError = a.stats.lastError.Error()
	}
	if a.stats.auditError != nil {
		s.AuditError = a.stats.auditError.Error()
	}
	if a.stats.sweepError != nil {
		s.SweepError = a.stats.sweepError.Error()
	}
	return s
}
