package rules

import "strings"

// noRow owns the lines that belong to no single change.
const noRow = -1

// tableText collects the restore lines of one table. iptables-restore wants
// all declarations before the first rule, and a chain can be removed only
// once nothing refers to it, hence three parts.
type tableText struct {
	declared, appended, removed []textLine
}

// textLine remembers the change it was written for, so that the line number
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
		if line = strings.TrimSpace(line); line != "" {
			t.appended = append(t.appended, textLine{"-A " + chain + " " + line, row})
		}
	}
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

// render prints the tables in the order of their names; owners has the row
// of each line.
func (s tableSet) render() (text string, owners []int) {
	var b strings.Builder
	put := func(line string, row int) {
		b.WriteString(line)
		b.WriteByte('\n')
		owners = append(owners, row)
	}
	for _, name := range sortedKeys(s, strings.Compare) {
		put("*"+name, noRow)
		t := s[name]
		for _, part := range [][]textLine{t.declared, t.appended, t.removed} {
			for _, line := range part {
				put(line.text, line.row)
			}
		}
		put("COMMIT", noRow)
	}
	return b.String(), owners
}
