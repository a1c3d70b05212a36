package dataplane

import (
	"context"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// Stage is one table as the pipeline sees it; *delta.Table is one.
type Stage interface {
	Name() string
	ApplyUpdates(ctx context.Context) delta.Outcome
	ApplyDeletes(ctx context.Context, orphans bool) delta.Outcome
	Counts() delta.Counts
}

// Step is a stage with its place in the law of order.
type Step struct {
	Stage
	// Base: while rows of this stage cannot be written, the updates of later
	// stages wait, for they would attract traffic that cannot return.
	Base bool
}

// Pipeline runs the stages of a mode in order.
type Pipeline struct {
	steps []Step
}

// NewPipeline returns a pipeline over steps, bottom first. Two stages of one
// name are a broken build of the program and panic.
func NewPipeline(steps ...Step) *Pipeline {
	seen := map[string]bool{}
	for _, s := range steps {
		if seen[s.Name()] {
			panic("dataplane: two stages named " + s.Name())
		}
		seen[s.Name()] = true
	}
	return &Pipeline{steps: steps}
}

// Apply writes what is pending: updates down the list, deletions up it.
func (p *Pipeline) Apply(ctx context.Context, opts ApplyOptions) Result {
	outcomes := make([]delta.Outcome, len(p.steps))
	for i, s := range p.steps {
		outcomes[i] = s.ApplyUpdates(ctx)
		if s.Base && outcomes[i].Failed > 0 {
			break
		}
	}
	for i := len(p.steps) - 1; i >= 0; i-- {
		outcomes[i] = outcomes[i].Plus(p.steps[i].ApplyDeletes(ctx, !opts.KeepOrphans))
	}
	return p.result(outcomes, opts)
}

func (p *Pipeline) result(outcomes []delta.Outcome, opts ApplyOptions) Result {
	var r Result
	for i, s := range p.steps {
		if o := outcomes[i]; o.Written() > 0 || o.Failed > 0 {
			r.Stages = append(r.Stages, StageResult{Stage: s.Name(), Outcome: o})
		}
		c := s.Counts()
		r.Pending += c.Pending()
		if opts.KeepOrphans {
			r.Pending -= c.Orphans
		}
	}
	return r
}

// Pending tells whether there is anything to write under opts.
func (p *Pipeline) Pending(opts ApplyOptions) int {
	return p.result(make([]delta.Outcome, len(p.steps)), opts).Pending
}

// Tables reports the sizes of all stages in order.
func (p *Pipeline) Tables() []TableStatus {
	out := make([]TableStatus, len(p.steps))
	for i, s := range p.steps {
		c := s.Counts()
		out[i] = TableStatus{Table: s.Name(), Desired: c.Desired, Updates: c.Updates, Deletes: c.Deletes, Orphans: c.Orphans}
	}
	return out
}

// String prints the order, for documentation and errors.
func (p *Pipeline) String() string {
	text := ""
	for i, s := range p.steps {
		if i > 0 {
			text += " -> "
		}
		text += s.Name()
		if s.Base {
			text += "*"
		}
	}
	return fmt.Sprintf("[%s]", text)
}
