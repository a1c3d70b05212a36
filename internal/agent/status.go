package agent

import (
	"maps"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// Status is the state of the loop, for people and programs. Its field names in JSON are stable.
type Status struct {
	Node string `json:"node"`
	About
	Mode string `json:"mode"`
	// Synced: every source has delivered. Complete: and could read all of it. Ready: and every desired row
	// was in the kernel at least once.
	Synced   bool `json:"synced"`
	Complete bool `json:"complete"`
	Ready    bool `json:"ready"`
	// Unreadable is input that cannot be read as it is now, with the reason. Its last good content is
	// served, so that Complete may be true all the same.
	Unreadable []string `json:"unreadable,omitempty"`
	ServiceTotals
	DrainTotals
	// NodePorts are the addresses on which NodePorts answer, HealthChecks the number of Services with a
	// health-check port.
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
	AuditTotals
	// SweepError is why a row of another mode could not be removed.
	SweepError string `json:"sweepError,omitempty"`
	// Last is the latest cycle that wrote something.
	Last *Cycle `json:"last,omitempty"`
}

// About is the part of Status about the program and its machine.
type About struct {
	// Version is the release of the program, Kernel that of the kernel it runs on.
	Version string `json:"version,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
	// Scheduler is the algorithm of Services that ask for none.
	Scheduler string `json:"scheduler,omitempty"`
	// Rules is where ipvs mode keeps rules and sets: iptables or nftables. RulesReason has the reason.
	Rules       string `json:"rules,omitempty"`
	RulesReason string `json:"rulesReason,omitempty"`
}

// ServiceTotals are the part of Status about Services.
type ServiceTotals struct {
	// Services have frontends, Skipped ones have none, for a reason, and Noted ones lack something they
	// ask for.
	Services int `json:"services"`
	Skipped  int `json:"skipped"`
	Noted    int `json:"noted"`
	// RefusedAnnotations are Services with an annotation that is not followed, their own or that of a
	// slice or a Node behind them.
	RefusedAnnotations int `json:"refusedAnnotations"`
	// Unbound addresses of Services are served and not bound, because another machine needs them or this
	// one uses them itself. Conflicts are frontends that a Service wants and another one has. Both count
	// once for each Service.
	Unbound   int `json:"unboundAddresses"`
	Conflicts int `json:"addressConflicts"`
}

// DrainTotals are the part of Status about destinations that come and leave.
type DrainTotals struct {
	// Draining destinations have lost their endpoint and keep their connections.
	Draining int `json:"draining"`
	// Climbing destinations are new, and get their whole weight in steps.
	Climbing int `json:"climbing"`
	// Trash is how many deleted destinations the kernel may still keep.
	Trash int `json:"trash"`
}

// AuditTotals are the part of Status about audits.
type AuditTotals struct {
	// Audits counts those that are complete, Drifted the rows that they and samples found changed.
	Audits  uint64 `json:"audits"`
	Drifted uint64 `json:"drifted"`
	// AuditPeriod is the time from one audit to the next in seconds, 0 for none.
	AuditPeriod float64 `json:"auditRestSeconds"`
	// LastAudit is the latest one that is complete.
	LastAudit *AuditRecord `json:"lastAudit,omitempty"`
	// AuditError is what the latest audit, or the one in progress, could not read: drift there is not
	// seen.
	AuditError string `json:"auditError,omitempty"`
}

// A Pass is one try to make the kernel hold the desired rows, whether or not it had anything to write.
type Pass struct {
	At   time.Time
	Took time.Duration
	// OK: nothing is left to do.
	OK bool
	// Triggers are the times at which the changes of endpoints began that were written; rows that the
	// kernel refuses do not count.
	Triggers []catalog.Trigger
}

// A Cycle is one pass that wrote something, or tried to.
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

// stats owns what the loop counts of its cycles. It belongs to the loop goroutine.
type stats struct {
	cycles     uint64
	written    map[string]uint64
	last       *Cycle
	sweepError error // why a row of another mode stays
}

// record counts one pass, for which so many Services were compiled. It returns the cycle, nil for a pass
// that did nothing, and how many rows it wrote.
func (s *stats) record(start, ended time.Time, services int, r dataplane.Result) (c *Cycle, written int) {
	if len(r.Stages) == 0 {
		return nil, 0
	}
	c = &Cycle{At: start, Took: ended.Sub(start), Services: services, Pending: r.Pending}
	if s.written == nil {
		s.written = map[string]uint64{}
	}
	for _, stage := range r.Stages {
		c.Rows = append(c.Rows, TableRows{stage.Stage, stage.Adds, stage.Updates, stage.Deletes, stage.Failed, stage.Took})
		s.written[stage.Stage] += uint64(stage.Written())
	}
	if written = r.Total().Written(); written > 0 {
		s.cycles++
	}
	s.last = c
	return c, written
}

// status returns the state of the loop; on the loop goroutine.
func (a *Agent) status() Status {
	s := Status{
		Node: a.opts.NodeName, Mode: a.mode.Name(),
		Synced: a.progress.synced, Complete: a.progress.complete, Ready: a.progress.ready,
		ServiceTotals: a.planner.outcomes.totals(), DrainTotals: drainTotals(a.mode.Drains(), time.Now()), AuditTotals: a.audit.totals(),
		NodePorts: a.planner.host.current.NodePorts, HealthChecks: len(a.planner.health.given), Healthy: a.Healthy(),
		Tables: a.mode.Tables(),
		Cycles: a.writer.stats.cycles, Written: map[string]uint64{}, Last: a.writer.stats.last,
		Failures: a.writer.backoff.failures, LastError: errorText(a.writer.backoff.lastError), SweepError: errorText(a.writer.stats.sweepError),
	}
	if a.opts.About != nil {
		s.About = a.opts.About()
	}
	if a.opts.Unreadable != nil {
		s.Unreadable = a.opts.Unreadable()
	}
	maps.Copy(s.Written, a.writer.stats.written)
	return s
}

func (s *outcomes) totals() ServiceTotals {
	c := s.counts
	return ServiceTotals{
		Services: c.Services, Skipped: c.Skipped, Noted: c.Noted,
		RefusedAnnotations: c.RefusedAnnotations, Unbound: c.Unbound, Conflicts: c.Conflicts,
	}
}

func drainTotals(d dataplane.Drains, now time.Time) DrainTotals {
	return DrainTotals{Draining: d.Now, Climbing: d.Climbing, Trash: d.Trash.Len(now)}
}
