package rules

import "strings"

// noRow owns the lines that belong to no single change.
const noRow = -1

// tableText collects the restore lines of one table. iptables-restore needs all declarations before
// the first rule. A rule can lead only to an existing chain, and a chain can be removed only if no
// rule refers to it.
type tableText struct {
	declared, appended, inserted, deleted, removed []textLine
}

// textLine keeps the change it was written for, so that the line number
// in an error names the guilty one.
type textLine struct {
	text string
	row  int
}

// declare creates the chain or empties it.
func (t *tableText) declare(row int, chain string) {
	t.declared = append(t.declared, textLine{":" + chain + " - [0:0]", row})
}

// rules appends each line of text to the chain.
func (t *tableText) rules(row int, chain, text string) {
	for line := range strings.Lines(text) {
		if line = trim(line); line != "" {
			t.appended = append(t.appended, textLine{"-A " + chain + " " + line, row})
		}
	}
}

// inOrder adds a line whose place among the others counts.
func (t *tableText) inOrder(row int, line string) {
	t.appended = append(t.appended, textLine{line, row})
}

// insert makes the rule the first of the chain.
func (t *tableText) insert(row int, chain, rule string) {
	t.inserted = append(t.inserted, textLine{trim("-I " + chain + " " + rule), row})
}

// delete takes the first rule like this out of the chain.
func (t *tableText) delete(row int, chain, rule string) {
	t.deleted = append(t.deleted, textLine{trim("-D " + chain + " " + rule), row})
}

// remove deletes the (by then empty) chain.
func (t *tableText) remove(row int, chain string) {
	t.removed = append(t.removed, textLine{"-X " + chain, row})
}

// tableSet is the restore input of one family, table name to lines.
type tableSet map[string]*tableText

func (s tableSet) at(table string) *tableText {
	if s[table] == nil {
		s[table] = &tableText{}
	}
	return s[table]
}

// script is restore input.
type script struct {
	text   string
	owners []int // the row of each line
	// commits has the line, counted from 1, that ends each table: the tools apply a table there,
	// even if a later table fails.
	commits map[string]int
}

// render prints the tables in the order of their names.
func (s tableSet) render() script {
	out := script{commits: map[string]int{}}
	var b strings.Builder
	put := func(line string, row int) {
		b.WriteString(line)
		b.WriteByte('\n')
		out.owners = append(out.owners, row)
	}
	for _, name := range sortedKeys(s, strings.Compare) {
		put("*"+name, noRow)
		t := s[name]
		for _, part := range [][]textLine{t.declared, t.appended, t.inserted, t.deleted, t.removed} {
			for _, line := range part {
				put(line.text, line.row)
			}
		}
		put("COMMIT", noRow)
		out.commits[name] = len(out.owners)
	}
	out.text = b.String()
	return out
}
