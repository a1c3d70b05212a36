package rules

import "slices"

// action is what a step does with the chain of its row.
type action uint8

const (
	write  action = iota // create or empty, then append the rules
	insert               // put one rule in front of the others
	drop                 // take one rule out
	flush                // create or empty, so that it refers to nothing
	remove               // delete the emptied chain
)

// step is one action for one change; the deletion of a chain takes two.
type step struct {
	row    int
	action action
}

// Bounds of the restore input of one process. With nft the time grows faster
// than the input (20,000 lines 0.5 s, 60,000 lines 3.5 s) and the socket buffer
// has an end. Legacy reads and writes the whole table in every process, so it
// gets all at once, short of what would take hundreds of megabytes.
const (
	maxLines       = 10_000
	maxLinesLegacy = 500_000
)

func (b Backend) maxLines() int {
	if b == Legacy {
		return maxLinesLegacy
	}
	return maxLines
}

// changes are the rows of one call: those of chains first, then those of rules.
type changes struct {
	chains []ChainChange
	rules  []RuleChange
}

func (c changes) isRule(row int) bool { return row >= len(c.chains) }

func (c changes) rule(row int) RuleChange { return c.rules[row-len(c.chains)] }

// chain is the key of the chain that a row is about.
func (c changes) chain(row int) ChainKey {
	if c.isRule(row) {
		return c.rule(row).Chain
	}
	return c.chains[row].Key
}

// content is the text of the rules that a step puts into its chain.
func (c changes) content(s step) string {
	switch s.action {
	case write:
		return c.chains[s.row].Chain.Rules
	case insert:
		return c.rule(s.row).Rule
	}
	return ""
}

// plan orders the changes of one family: chains that are written, rules that
// come, rules that go, then the flush of every chain to go, then the removals.
// Nothing is referred to before it is there or removed while referenced.
func (c changes) plan(f Family) []step {
	var byAction [remove + 1][]step
	add := func(a action, row int) { byAction[a] = append(byAction[a], step{row, a}) }
	for row, change := range c.chains {
		switch {
		case change.Key.Family != f:
		case change.Op == Delete:
			add(flush, row)
			add(remove, row)
		default:
			add(write, row)
		}
	}
	for i, change := range c.rules {
		switch {
		case change.Chain.Family != f:
		case change.Op == Delete:
			add(drop, len(c.chains)+i)
		default:
			add(insert, len(c.chains)+i)
		}
	}
	return slices.Concat(byAction[:]...)
}

// cut makes pieces of at most limit lines, in order. Only when there is more
// than one piece are the writes sorted so that a chain comes after those its
// rules jump to.
func (c changes) cut(steps []step, limit int) [][]step {
	total := 0
	for _, s := range steps {
		total += c.lines(s)
	}
	if total <= limit {
		return [][]step{steps}
	}
	var pieces [][]step
	size := limit
	for _, s := range c.calleesFirst(steps) {
		n := c.lines(s)
		if size += n; size > limit {
			pieces, size = append(pieces, nil), n
		}
		last := len(pieces) - 1
		pieces[last] = append(pieces[last], s)
	}
	return pieces
}

func (c changes) lines(s step) int {
	if s.action != write {
		return 1
	}
	return 1 + countLines(c.content(s))
}

// calleesFirst sorts the writes among steps; the kernel allows no loops, and
// a loop in the input merely ends in some order.
func (c changes) calleesFirst(steps []step) []step {
	o := ordering{changes: c, writes: map[ChainKey]step{}}
	for _, s := range steps {
		if s.action == write {
			o.writes[c.chain(s.row)] = s
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
	changes
	writes map[ChainKey]step
	sorted []step
}

func (o *ordering) visit(s step) {
	key := o.chain(s.row)
	if _, open := o.writes[key]; !open {
		return
	}
	delete(o.writes, key)
	for _, name := range Targets(o.content(s)) {
		if next, ok := o.writes[ChainKey{key.Family, key.Table, name}]; ok {
			o.visit(next)
		}
	}
	o.sorted = append(o.sorted, s)
}

// render prints the steps as restore input.
func (c changes) render(steps []step) script {
	tables := tableSet{}
	for _, s := range steps {
		key := c.chain(s.row)
		t := tables.at(key.Table)
		switch s.action {
		case write:
			t.declare(s.row, key.Name)
			t.rules(s.row, key.Name, c.content(s))
		case insert:
			t.insert(s.row, key.Name, c.content(s))
		case drop:
			t.delete(s.row, key.Name, c.rule(s.row).Rule)
		case flush:
			t.declare(s.row, key.Name)
		case remove:
			t.remove(s.row, key.Name)
		}
	}
	return tables.render()
}

// RestoreTexts is what [Handle.Write] hands to iptables-restore --noflush for
// one family, a text a process, if none is refused.
func RestoreTexts(b Backend, f Family, chains []ChainChange, rules []RuleChange) []string {
	c := changes{chains, rules}
	var texts []string
	if steps := c.plan(f); len(steps) > 0 {
		for _, piece := range c.cut(steps, b.maxLines()) {
			texts = append(texts, c.render(piece).text)
		}
	}
	return texts
}
