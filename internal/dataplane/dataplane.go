package dataplane

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Dataplane is one mode of carrying Services in the kernel. All methods are
// called by the loop goroutine alone. Set and SetHost work in memory only;
// everything else talks to the kernel and honours the context's deadline.
type Dataplane interface {
	Explainer
	// Name is the value of --proxy-mode that selects it.
	Name() string
	// Start makes ready what the mode stands on (device, sysctls) and may be
	// called again when that was lost.
	Start(ctx context.Context) error
	// Load reads what the kernel holds. It must succeed once before Apply, and
	// may be called again whenever that knowledge is in doubt.
	Load(ctx context.Context) error
	// Serves tells whether the kernel, as it was read, carries any Service.
	Serves() bool
	// Founds tells whether Apply has rows to write before any Service is known: those
	// that all of them need.
	Founds() bool
	// Set replaces what one Service wants and returns the Services whose
	// standing in a conflict over an address changed by it.
	Set(plan model.ServicePlan) []Conflict
	// Frontends are what Services want, and who has it, for those who only read.
	Frontends() *Frontends
	// SetHost tells what is known of the machine the agent runs on.
	SetHost(host model.Host)
	// Apply writes what is pending.
	Apply(ctx context.Context, opts ApplyOptions) Result
	// Due is when Apply has something to do although nothing changes; the zero time
	// for never. A time that is past means now.
	Due() time.Time
	// Drains tells what drains, and how that ended that did, and what climbs.
	Drains() Drains
	// Audit goes on with comparing all of the kernel with what is believed, or begins
	// that, and makes differences pending. It returns soon after budget.
	Audit(ctx context.Context, budget time.Duration) (Audited, error)
	// Sample reads a few signs, chosen so that it costs little, of a large loss, makes
	// pending what it finds, and sets sysctls again.
	Sample(ctx context.Context) (Sampled, error)
	// Tables reports the sizes of the mode's tables in stage order.
	Tables() []TableStatus
	// Pending lists what is not in place, in stage order, no more than most rows of each
	// table; tables without any are left out.
	Pending(most int) []PendingTable
	// Moving adds what drains and what climbs to a list.
	Moving(list *MovingList)
	// WriteRows prints the desired rows of one kind ("servers", "sets", "rules",
	// "addresses") in the text of the operator's own tool.
	WriteRows(w io.Writer, kind string) error
	// Clear wants nothing any more: the next Apply takes everything away.
	Clear()
	// Remove takes away what Start made, after everything else is gone.
	Remove(ctx context.Context) error
}

// ApplyOptions limit one Apply.
type ApplyOptions struct {
	// KeepOrphans leaves rows alone that were found and that nobody asked for:
	// some input could not be read, so they may belong to it.
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
	// Doubt: what was lost is likely not all, so an audit should begin at once.
	Doubt bool
}

// Drift counts the rows that an audit found to be different from what was
// believed, by table.
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
