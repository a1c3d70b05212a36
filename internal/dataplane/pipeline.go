package dataplane

import (
	"context"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// Stage is one table as the pipeline sees it; *delta.Table is one.
type Stage interface {
	Name() string
	ApplyUpdates(ctx context.Context, p delta.Pass) delta.Outcome
	ApplyDeletes(ctx context.Context, p delta.Pass) delta.Outcome
	Counts() delta.Counts
}

// Publisher is a stage that writes some of its rows in two steps, so that no client meets them
// before the rows of the next stage are in place. ApplyUpdates creates them. Publish, called after
// the updates of the next stage were tried, activates them.
type Publisher interface {
	Stage
	Publish(ctx context.Context, p delta.Pass) delta.Outcome
}

// Pipeline runs the stages of a mode in order.
type Pipeline struct {
	stages []Stage
}

// NewPipeline returns a pipeline over stages, bottom first. Two stages of one
// name are a broken build of the program and panic.
func NewPipeline(stages ...Stage) *Pipeline {
	seen := map[string]bool{}
	for _, s := range stages {
		if seen[s.Name()] {
			panic("dataplane: two stages named " + s.Name())
		}
		seen[s.Name()] = true
	}
	return &Pipeline{stages: stages}
}

// Apply writes what is pending: updates down the list, deletions up it. Rows of a stage are
// published after the updates of the stage after it.
func (p *Pipeline) Apply(ctx context.Context, opts ApplyOptions) Result {
	outcomes := make([]delta.Outcome, len(p.stages))
	for i, s := range p.stages {
		outcomes[i] = s.ApplyUpdates(ctx, opts.pass())
		if i == 0 {
			continue
		}
		if below, ok := p.stages[i-1].(Publisher); ok {
			outcomes[i-1] = outcomes[i-1].Plus(below.Publish(ctx, opts.pass()))
		}
	}
	for i := len(p.stages) - 1; i >= 0; i-- {
		outcomes[i] = outcomes[i].Plus(p.stages[i].ApplyDeletes(ctx, opts.pass()))
	}
	return p.result(outcomes, opts)
}

// Skipped is the result of a pass that was given up before its first write, for the reason in the
// outcome of the first stage.
func (p *Pipeline) Skipped(first delta.Outcome, opts ApplyOptions) Result {
	outcomes := make([]delta.Outcome, len(p.stages))
	outcomes[0] = first
	return p.result(outcomes, opts)
}

func (p *Pipeline) result(outcomes []delta.Outcome, opts ApplyOptions) Result {
	var r Result
	for i, s := range p.stages {
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

// Tables reports the sizes of all stages in order.
func (p *Pipeline) Tables() []TableStatus {
	out := make([]TableStatus, len(p.stages))
	for i, s := range p.stages {
		c := s.Counts()
		out[i] = TableStatus{Table: s.Name(), Desired: c.Desired, Updates: c.Updates, Deletes: c.Deletes, Orphans: c.Orphans}
	}
	return out
}

// String prints the order, for people.
func (p *Pipeline) String() string {
	names := make([]string, len(p.stages))
	for i, s := range p.stages {
		names[i] = s.Name()
	}
	return strings.Join(names, " -> ")
}
