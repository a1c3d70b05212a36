package dataplane

import (
	"context"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Dataplane is one mode: it turns plans into rows of the kernel and writes them. The loop goroutine
// alone calls its methods. Set and SetHost work in memory; every other method may call the kernel and
// honours the context's deadline. A mode may implement Bootstrapper, Auditor, Timed, Drainer,
// Explainer and Announcer besides; the agent asks for them once, when it opens the mode.
type Dataplane interface {
	// Name is the value of --proxy-mode that selects the mode.
	Name() string
	// Start sets up what the mode needs (device, sysctls). It may be called again when that was lost.
	Start(ctx context.Context) error
	// Load reads the rows that the kernel holds. It must succeed once before Apply, and may be called
	// again whenever that knowledge is in doubt.
	Load(ctx context.Context) error
	// CarriesServices reports whether the kernel served any Service when it was read.
	CarriesServices() bool
	// SetHost replaces what is known of the machine that the agent runs on.
	SetHost(host model.Host)
	// Set replaces the plan of one Service and returns the conflicts over an address that began, changed
	// or ended by it.
	Set(plan model.ServicePlan) []Conflict
	// Apply writes the pending rows.
	Apply(ctx context.Context, opts ApplyOptions) Result
	// Tables returns the sizes of the mode's tables in stage order.
	Tables() []TableStatus
}

// A Bootstrapper can be filled in chunks on a node that carries nothing yet.
type Bootstrapper interface {
	// HasBaseState reports whether Apply has rows to write before any Service is known: rows that all
	// Services need.
	HasBaseState() bool
}

// An Auditor finds rows that another process changed.
type Auditor interface {
	// Audit begins or continues the comparison of the whole kernel with the actual rows in memory, and
	// makes differences pending. It returns soon after budget.
	Audit(ctx context.Context, budget time.Duration) (Audited, error)
	// Sample reads a few cheap signs of a large loss, makes the rows pending that it finds lost, and sets
	// sysctls again.
	Sample(ctx context.Context) (Sampled, error)
}

// A Timed mode has rows whose desired state changes with time alone.
type Timed interface {
	// Due returns when Apply has something to do although no input changed: the zero time for never, a
	// time in the past for now.
	Due() time.Time
}

// A Drainer keeps destinations that are about to leave, or that just came.
type Drainer interface {
	// Drains returns how many destinations drain or start slowly, and how past drains ended.
	Drains() Drains
	// Moving adds the destinations that drain or start slowly to a list.
	Moving(list *MovingList)
}

// Inspectable is a mode whose rows and packet paths can be read.
type Inspectable interface {
	Dataplane
	Explainer
}

// Removable is a mode whose rows can be removed from the kernel (Sweep).
type Removable interface {
	Dataplane
	// Clear drops all plans: the next Apply deletes every row.
	Clear()
	// Remove deletes what Start made. Call it when every row is gone.
	Remove(ctx context.Context) error
}

// ApplyOptions limit one Apply.
type ApplyOptions struct {
	// KeepOrphans keeps rows that were found and that no Service wants: some input could not be
	// read, and the rows may belong to it.
	KeepOrphans bool
	// Retry writes the rows, too, that failed before; without it they rest.
	Retry bool
}

func (o ApplyOptions) pass() delta.Pass { return delta.Pass{Orphans: !o.KeepOrphans, Retry: o.Retry} }

// Result is what one Apply did, a StageResult for each stage in stage order.
type Result struct {
	Stages []StageResult
	// Pending is the number of rows that are still to be written and may be
	// written now; kept orphans do not count.
	Pending int
	// Paced are those of them that nothing is wrong with: they were held back so that
	// other changes need not wait for them, and are to be applied soon.
	Paced int
}

// StageResult is the outcome of one stage.
type StageResult struct {
	Stage string
	delta.Outcome
}

// Then is the result of two passes, one after the other.
func (r Result) Then(next Result) Result {
	for _, s := range next.Stages {
		i := slices.IndexFunc(r.Stages, func(o StageResult) bool { return o.Stage == s.Stage })
		if i < 0 {
			r.Stages = append(r.Stages, s)
			continue
		}
		r.Stages[i].Outcome = r.Stages[i].Plus(s.Outcome)
	}
	r.Pending = next.Pending
	return r
}

// Total adds up all stages.
func (r Result) Total() delta.Outcome {
	var out delta.Outcome
	for _, s := range r.Stages {
		out = out.Plus(s.Outcome)
	}
	return out
}

// Audited is what one call of Audit did.
type Audited struct {
	Drift Drift
	// Done: everything was read, and the next call begins another audit.
	Done bool
	// Cost is for how long it was busy, and what runs beside it.
	Cost time.Duration
}

// Sampled is what one sample found.
type Sampled struct {
	Drift Drift
	// Doubt means that more was lost, probably, so an audit should begin at once.
	Doubt bool
}

// Drift counts the rows that an audit found to differ from the known actual rows, by table.
type Drift map[string]int

// Total is the number of rows in all tables.
func (d Drift) Total() int {
	n := 0
	for _, rows := range d {
		n += rows
	}
	return n
}

// TableStatus is the size of one table.
type TableStatus struct {
	Table string `json:"table"`
	// Desired rows, and how many of them are not in place.
	Desired int `json:"desired"`
	Updates int `json:"pendingUpdates"`
	// Deletes are rows in place that are not wanted, Orphans the ones among them
	// that were found and never asked for.
	Deletes int `json:"pendingDeletes"`
	Orphans int `json:"orphans"`
}
