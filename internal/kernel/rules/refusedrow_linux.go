package rules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// refusedRow finds the change whose line the tool complains about.
func (s script) refusedRow(err error) (row int, known bool) {
	line := lineOf(err)
	if line < 1 || line > len(s.owners) || s.owners[line-1] == noRow {
		return 0, false
	}
	return s.owners[line-1], true
}

// lineOf is the line of input that a tool complains about, 0 for none.
func lineOf(err error) int {
	var e *toolError
	if !errors.As(err, &e) {
		return 0
	}
	return faultyLine(e.text)
}

// suspectRows are the rows that lead to the chain that the tool names as missing. nft gives no line for
// it, or that of COMMIT, and otherwise all rows would be tried one by one.
func (b *batch) suspectRows(steps []step, s script, err error) []int {
	var e *toolError
	if !errors.As(err, &e) {
		return nil
	}
	name, line := missingChain(e.text), faultyLine(e.text)
	if name == "" || line == 0 {
		return nil
	}
	var rows []int
	for _, step := range steps {
		key := b.chain(step.row)
		if s.tableAt(line) == key.Table && slices.Contains(Targets(b.content(step)), name) {
			rows = append(rows, step.row)
		}
	}
	return rows
}

// tableAt is the table that a line belongs to.
func (s script) tableAt(line int) string {
	at, end := "", len(s.owners)+1
	for table, commit := range s.commits {
		if commit >= line && commit < end {
			at, end = table, commit
		}
	}
	return at
}

// line is one line of the input, counted from 1, "" for one that is not there.
func (s script) line(n int) string {
	lines := strings.SplitN(s.text, "\n", max(n, 0)+1)
	if n < 1 || n > len(lines) {
		return ""
	}
	return lines[n-1]
}

// explain adds what legacy leaves out: it fails a removal without a reason,
// and for a chain that is ours and empty only a reference is left.
func explain(err error, s script) error {
	var e *toolError
	if !errors.As(err, &e) || e.kind != nil {
		return err
	}
	if strings.HasPrefix(s.line(faultyLine(e.text)), "-X ") {
		return fmt.Errorf("still referenced: %w: %w", ErrBusy, err)
	}
	return err
}

// tooLong: in a user namespace nft may not enlarge its socket buffer, so
// less fits into one batch than maxLines.
func tooLong(err error) bool { return strings.Contains(err.Error(), "Message too long") }

// hopeless errors would hit every other attempt too: no process, no time
// left, the lock not had, a capability or the table not there.
func hopeless(ctx context.Context, err error) bool {
	var e *toolError
	if ctx.Err() != nil || !errors.As(err, &e) || e.status < 0 {
		return true
	}
	return errors.Is(err, fs.ErrPermission) || strings.Contains(e.text, lockMessage) || strings.Contains(e.text, "can't initialize")
}
