package delta

import "context"

// A Group are two tables that one write carries out together, because rows of one refer to rows of
// the other. In a pass each is a stage of its own. The member that the pass visits first (the lower
// one for updates, the upper one for deletions) writes for both. The other member then returns the
// results of its own rows.
type Group struct {
	tables [2]member
	write  func(ctx context.Context, p Pass, deletes bool) [2]Outcome
	kept   Outcome
}

// member is the part of its tables that a Group uses; *Table is one.
type member interface {
	Name() string
	Counts() Counts
}

// NewGroup returns a group of two tables. write carries out what is pending of both and returns
// the outcome of each; with deletes it is called when the tables above have deleted their rows.
func NewGroup(lower, upper member, write func(ctx context.Context, p Pass, deletes bool) [2]Outcome) *Group {
	return &Group{tables: [2]member{lower, upper}, write: write}
}

// Lower returns the first stage, Upper the second.
func (g *Group) Lower() GroupStage { return GroupStage{g, 0} }

// Upper returns the stage above Lower.
func (g *Group) Upper() GroupStage { return GroupStage{g, 1} }

// GroupStage is one table of a Group as a stage.
type GroupStage struct {
	group *Group
	at    int
}

// Name is the table's name.
func (s GroupStage) Name() string { return s.group.tables[s.at].Name() }

// Counts returns the sizes of the table.
func (s GroupStage) Counts() Counts { return s.group.tables[s.at].Counts() }

// ApplyUpdates writes, or returns what was written for this table just before.
func (s GroupStage) ApplyUpdates(ctx context.Context, p Pass) Outcome { return s.apply(ctx, p, 0) }

// ApplyDeletes does so for deletions.
func (s GroupStage) ApplyDeletes(ctx context.Context, p Pass) Outcome { return s.apply(ctx, p, 1) }

// apply writes for both tables where first is the one that is asked first.
func (s GroupStage) apply(ctx context.Context, p Pass, first int) Outcome {
	if s.at != first {
		kept := s.group.kept
		s.group.kept = Outcome{}
		return kept
	}
	out := s.group.write(ctx, p, first == 1)
	s.group.kept = out[1-first]
	return out[first]
}
