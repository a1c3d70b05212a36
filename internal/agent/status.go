package agent

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
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
	// Services have frontends, Skipped ones have none, for a reason, and Noted
	// ones lack something they ask for.
	Services int `json:"services"`
	Skipped  int `json:"skipped"`
	Noted    int `json:"noted"`

	Tables []dataplane.TableStatus `json:"tables"`
	// Cycles counts the passes that wrote rows, Written those rows by table.
	Cycles  uint64            `json:"cycles"`
	Written map[string]uint64 `json:"written"`
	// Failures is how often in a row applying has failed, LastError why.
	Failures  uint64 `json:"failures"`
	LastError string `json:"lastError,omitempty"`
	// Audits counts complete rounds, Drifted the rows they found changed.
	Audits  uint64 `json:"audits"`
	Drifted uint64 `json:"drifted"`
	// Last is the latest cycle that wrote something.
	Last *Cycle `json:"last,omitempty"`
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
	drifted   uint64
	last      *Cycle
}

func (s *stats) taken(services int) { s.services += services }

// record notes what one pass did. A pass that did nothing is no cycle.
func (a *Agent) record(start time.Time, r dataplane.Result) {
	a.opts.Observer.Tables(a.opts.Mode.Tables())
	services := a.stats.services
	a.stats.services = 0
	if len(r.Stages) == 0 {
		return
	}
	c := Cycle{At: start, Took: time.Since(start), Services: services, Pending: r.Pending}
	if a.stats.written == nil {
		a.stats.written = map[string]uint64{}
	}
	for _, s := range r.Stages {
		c.Rows = append(c.Rows, TableRows{s.Stage, s.Adds, s.Updates, s.Deletes, s.Failed})
		a.stats.written[s.Stage] += uint64(s.Written())
	}
	if r.Total().Written() > 0 {
		a.stats.cycles++
		a.log.Info("kernel updated", zap.Int("services", services), zap.Array("rows", rowCounts(c.Rows)),
			zap.Duration("took", c.Took), zap.Int("pending", r.Pending))
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
	s := Status{
		Node: a.opts.NodeName, Mode: a.opts.Mode.Name(),
		Synced: a.synced, Complete: a.complete, Ready: a.stats.ready,
		Tables: a.opts.Mode.Tables(),
		Cycles: a.stats.cycles, Written: map[string]uint64{},
		Failures: a.stats.failures, Audits: a.stats.audits, Drifted: a.stats.drifted, Last: a.stats.last,
	}
	for table, n := range a.stats.written {
		s.Written[table] = n
	}
	if a.stats.lastError != nil {
		s.LastError = a.stats.lastError.Error()
	}
	for _, o := range a.services {
		switch {
		case o.skipped != "":
			s.Skipped++
		default:
			s.Services++
		}
		if len(o.notes) > 0 {
			s.Noted++
		}
	}
	return s
}

// logOutcome says once what is not served of a Service, and why.
func (a *Agent) logOutcome(id model.ServiceID, before, now outcome) {
	if now.skipped != "" && now.skipped != before.skipped {
		a.log.Info("service skipped", zap.Stringer("service", id), zap.String("reason", now.skipped))
	}
	for _, n := range now.notes {
		if !slices.Contains(before.notes, n) {
			a.log.Info("service note", zap.Stringer("service", id), zap.String("reason", n))
		}
	}
}

// logAdopted says what was found in the kernel and goes on serving.
func (a *Agent) logAdopted() {
	fields := []zap.Field{zap.String("mode", a.opts.Mode.Name())}
	for _, t := range a.opts.Mode.Tables() {
		if n := t.Desired - t.Updates; n > 0 {
			fields = append(fields, zap.Int(t.Table, n))
		}
	}
	a.log.Info("kernel read, rows in place adopted", fields...)
}
