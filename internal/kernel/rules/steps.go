package rules

// action is what a step does with the chain of its row.
type action uint8

const (
	write  action = iota // create or empty, then append the rules
	flush                // create or empty, so that it refers to nothing
	remove               // delete the emptied chain
)

// step is one action for one change; a Delete takes two.
type step struct {
	row    int
	action action
}

// maxLines bounds the restore input of one process. With nft the time grows
// faster than the input (20,000 lines 0.5 s, 60,000 lines 3.5 s) and the
// socket buffer has an end; legacy rewrites the whole table per process, so
// pieces should not be small either.
const maxLines = 10_000

// plan orders the changes of one family: writes, then the flush of every
// chain to go, then the removals. Nothing is removed while referenced.
func plan(changes []ChainChange, f Family) []step {
	var steps, flushes, removes []step
	for i, c := range changes {
		switch {
		case c.Key.Family != f:
		case c.Op == Delete:
			flushes = append(flushes, step{i, flush})
			removes = append(removes, step{i, remove})
		default:
			steps = append(steps, step{i, write})
		}
	}
	return append(append(steps, flushes...), removes...)
}

// cut makes pieces of at most limit lines, in order. Only when there is more
// than one piece are the writes sorted so that a chain comes after those its
// rules jump to.
func cut(changes []ChainChange, steps []step, limit int) [][]step {
	total := 0
	for _, s := range steps {
		total += s.lines(changes)
	}
	if total <= limit {
		return [][]step{steps}
	}
	var pieces [][]step
	size := limit
	for _, s := range calleesFirst(changes, steps) {
		n := s.lines(changes)
		if size += n; size > limit {
			pieces, size = append(pieces, nil), n
		}
		last := len(pieces) - 1
		pieces[last] = append(pieces[last], s)
	}
	return pieces
}

func (s step) lines(changes []ChainChange) int {
	if s.action != write {
		return 1
	}
	return 1 + countLines(changes[s.row].Chain.Rules)
}

// calleesFirst sorts the writes among steps; the kernel allows no loops, and
// a loop in the input merely ends in some order.
func calleesFirst(changes []ChainChange, steps []step) []step {
	o := ordering{changes: changes, writes: map[ChainKey]step{}}
	for _, s := range steps {
		if s.action == write {
			o.writes[changes[s.row].Key] = s
		}
	}
	for _, s := range steps {
		if s.action == write {
			o.visit(s)
		} else {
			o.sorted = append(o.sorted, s)
		}
	}
	return o.sorted
}

// ordering is a depth-first walk; a visited chain leaves writes.
type ordering struct {
	changes []ChainChange
	writes  map[ChainKey]step
	sorted  []step
}

func (o *ordering) visit(s step) {
	c := o.changes[s.row]
	if _, open := o.writes[c.Key]; !open {
		return
	}
	delete(o.writes, c.Key)
	for _, name := range Targets(c.Chain.Rules) {
		if next, ok := o.writes[ChainKey{c.Key.Family, c.Key.Table, name}]; ok {
			o.visit(next)
		}
	}
	o.sorted = append(o.sorted, s)
}

// render prints the steps as restore input with the row of each line.
func render(changes []ChainChange, steps []step) (text string, owners []int) {
	tables := tableSet{}
	for _, s := range steps {
		c := changes[s.row]
		t := tables.at(c.Key.Table)
		switch s.action {
		case write:
			t.declare(s.row, c.Key.Name)
			t.rules(s.row, c.Key.Name, c.Chain.Rules)
		case flush:
			t.declare(s.row, c.Key.Name)
		case remove:
			t.remove(s.row, c.Key.Name)
		}
	}
	return tables.render()
}
