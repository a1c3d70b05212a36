package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// check is one question to the cluster. Its note goes into the report; a needed check that fails ends the run, because the others
// would fail for its reason.
type check struct {
	name   string
	needed bool
	run    func(context.Context, *world) (note string, err error)
}

// row is a line of the report.
type row struct {
	name, result, note string
	took               time.Duration
}

type report struct{ rows []row }

// checkLimit bounds one check.
const checkLimit = 15 * time.Minute

// check runs what the options ask for, in order.
func (w *world) check(ctx context.Context) *report {
	r := &report{rows: []row{{name: fmt.Sprintf("%d nodes are Ready", w.o.nodes), result: passed, took: w.ready}}}
	for _, c := range checks {
		if !c.needed && !w.o.only.MatchString(c.name) {
			continue
		}
		if ctx.Err() != nil {
			r.rows = append(r.rows, row{name: c.name, result: "not run", note: "the run was ended"})
			continue
		}
		w.say("%s ...", c.name)
		done := w.one(ctx, c)
		w.say("%s: %s %s", c.name, done.result, done.note)
		r.rows = append(r.rows, done)
		if done.result == failed && c.needed {
			break
		}
	}
	return r
}

// Results of a check.
const (
	passed  = "ok"
	failed  = "FAILED"
	skipped = "skipped"
)

// needsNodes is the error of a check that makes no sense on fewer nodes.
type needsNodes int

func (n needsNodes) Error() string { return fmt.Sprintf("needs %d nodes", int(n)) }

func (w *world) one(ctx context.Context, c check) row {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	begin := time.Now()
	note, err := c.run(ctx, w)
	done := row{name: c.name, result: passed, note: note, took: time.Since(begin)}
	var few needsNodes
	switch {
	case errors.As(err, &few):
		done.result, done.note = skipped, err.Error()
	case err != nil:
		done.result, done.note = failed, err.Error()
	}
	return done
}

func (r *report) failed() bool {
	for _, one := range r.rows {
		if one.result != passed && one.result != skipped {
			return true
		}
	}
	return false
}

// noteWidth is how much of a note the table shows; the whole one was printed before.
const noteWidth = 100

func (r *report) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\ntest\tresult\ttime\t")
	for _, one := range r.rows {
		note := []rune(oneLine(one.note))
		if len(note) > noteWidth {
			note = append(note[:noteWidth], '…')
		}
		fmt.Fprintf(table, "%s\t%s\t%.0f s\t%s\n", one.name, one.result, one.took.Seconds(), string(note))
	}
	_ = table.Flush()
}
