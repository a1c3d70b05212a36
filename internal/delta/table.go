package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Store reads and writes the rows of one table for real.
//
// List returns all rows or an error, never a part. Write carries out the
// changes in their order as far as it can and returns nil, or one error for each
// change (nil where it was carried out). Writes converge: adding what exists
// updates it, updating what is missing adds it, deleting what is missing
// succeeds.
type Store[K comparable, V any] interface {
	List(ctx context.Context) (map[K]V, error)
	Write(ctx context.Context, changes []Change[K, V]) []error
}

// Options describe a Table.
type Options[K comparable, V any] struct {
	// Name is one lower-case word, for logs, metrics and tables.
	Name string
	// Compare is the order in which rows are added; deletions run backwards.
	Compare func(a, b K) int
	// Equal compares values.
	Equal func(a, b V) bool
	// Owned reports whether a row found by List belongs to this program. A desired row always is.
	// Nil: every row is.
	Owned func(K) bool
	// Wait keeps rows from being added or updated for now: they lack something
	// below them. Nil: none waits.
	Wait func(K) bool
	// Hold keeps rows from being deleted for now; nil holds none. It is asked
	// with the same orphans flag as ApplyDeletes.
	Hold func(k K, orphans bool) bool
	// KeyCodec is for a table of many rows.
	KeyCodec KeyCodec[K]
	// Batch bounds the rows of one Write; 0 is DefaultBatch.
	Batch int
}

// DefaultBatch bounds the rows of one write, so that no kernel lock and no
// deadline is held by an unbounded list.
const DefaultBatch = 1024

// Table joins a Tracker to its Store, and reports the result of each row to subscribers.
type Table[K comparable, V any] struct {
	*Tracker[K, V]
	opts    Options[K, V]
	store   Store[K, V]
	applied []func(Applied[K, V])
	refused []func(Change[K, V], error)
}

// Applied is the event of a row that was written. Before is its value until then, where one is
// known.
type Applied[K comparable, V any] struct {
	Change[K, V]
	Before V
	Had    bool
}

// NewTable returns a table with nothing desired and nothing known. One of a Group has no store.
func NewTable[K comparable, V any](store Store[K, V], opts Options[K, V]) *Table[K, V] {
	if opts.Batch <= 0 {
		opts.Batch = DefaultBatch
	}
	return &Table[K, V]{Tracker: NewPackedTracker(opts.Equal, opts.KeyCodec), opts: opts, store: store}
}

// OnApplied registers f, which is called for each row that was written, after the table has recorded it.
func (t *Table[K, V]) OnApplied(f func(Applied[K, V])) { t.applied = append(t.applied, f) }

// OnRefused registers f, which is called for each row that could not be written, before the table records it: f may
// record that rows are lost, and they stay pending.
func (t *Table[K, V]) OnRefused(f func(Change[K, V], error)) { t.refused = append(t.refused, f) }

// Outcome counts what one pass over a table did.
type Outcome struct {
	Adds, Updates, Deletes int
	// Failed are the rows that stay pending.
	Failed int
	// Took is the time that the store needed for its writes.
	Took time.Duration
	// reasons are the first few: a thousand rows that fail for one cause are one
	// piece of news.
	reasons [3]error
}

// Failures is the outcome of n rows that failed, for the given reasons among
// others.
func Failures(n int, reasons ...error) Outcome {
	o := Outcome{Failed: n}
	for _, err := range reasons {
		o.because(err)
	}
	return o
}

func (o *Outcome) because(err error) {
	for i, r := range o.reasons {
		if r == nil {
			o.reasons[i] = err
			return
		}
	}
}

// Err is why rows failed, on one line: the first few reasons. Nil if none did.
func (o Outcome) Err() error {
	if o.reasons[0] == nil {
		return nil
	}
	return failure(o)
}

// failure is an Outcome as an error.
type failure Outcome

// Error implements error.
func (f failure) Error() string {
	var parts []string
	for _, r := range f.reasons {
		if r != nil {
			parts = append(parts, r.Error())
		}
	}
	if rest := f.Failed - len(parts); rest > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(parts, "; ")
}

// Unwrap gives the reasons to errors.Is.
func (f failure) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(f.reasons[:]), func(err error) bool { return err == nil })
}

// Written is the number of rows carried out.
func (o Outcome) Written() int { return o.Adds + o.Updates + o.Deletes }

// Plus adds two outcomes up.
func (o Outcome) Plus(p Outcome) Outcome {
	o.Adds, o.Updates, o.Deletes, o.Failed = o.Adds+p.Adds, o.Updates+p.Updates, o.Deletes+p.Deletes, o.Failed+p.Failed
	o.Took += p.Took
	for _, r := range p.reasons {
		if r != nil {
			o.because(r)
		}
	}
	return o
}

// Name is the table's name.
func (t *Table[K, V]) Name() string { return t.opts.Name }

// Load reads the store and replaces what is known of the actual rows. Rows that
// are neither owned nor desired stay invisible. An error changes nothing.
func (t *Table[K, V]) Load(ctx context.Context) (drifted int, err error) {
	rows, err := t.store.List(ctx)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", t.opts.Name, err)
	}
	return t.LoadRows(rows), nil
}

// LoadRows is Load with rows that were read already; it keeps the map.
func (t *Table[K, V]) LoadRows(rows map[K]V) (drifted int) {
	for k := range rows {
		if !t.visible(k) {
			delete(rows, k)
		}
	}
	return t.Tracker.Load(rows)
}

// visible reports whether a found row belongs to this program.
func (t *Table[K, V]) visible(k K) bool {
	if t.opts.Owned == nil || t.opts.Owned(k) {
		return true
	}
	_, desired := t.Desired(k)
	return desired || t.PendingDelete(k)
}

// ApplyUpdates writes the rows that are missing or different, and that need not
// wait.
func (t *Table[K, V]) ApplyUpdates(ctx context.Context, p Pass) Outcome {
	if t.Counts().Updates == 0 {
		return Outcome{}
	}
	changes := t.Updates(t.opts.Compare, p)
	if t.opts.Wait != nil {
		changes = slices.DeleteFunc(changes, func(c Change[K, V]) bool { return t.opts.Wait(c.Key) })
	}
	return t.write(ctx, changes)
}

// ApplyDeletes deletes the rows that are not desired, the orphans only if the
// pass has them, and none that Hold keeps.
func (t *Table[K, V]) ApplyDeletes(ctx context.Context, p Pass) Outcome {
	if t.Counts().Deletes == 0 {
		return Outcome{}
	}
	changes := t.Deletes(t.opts.Compare, p)
	if t.opts.Hold != nil {
		changes = slices.DeleteFunc(changes, func(c Change[K, V]) bool { return t.opts.Hold(c.Key, p.Orphans) })
	}
	return t.write(ctx, changes)
}

// write carries out changes in bounded batches and records the results. A store that does not
// answer is not asked again in this pass: each batch would cost its deadline, and the loop is
// needed elsewhere.
func (t *Table[K, V]) write(ctx context.Context, changes []Change[K, V]) Outcome {
	var out Outcome
	for len(changes) > 0 {
		n := min(len(changes), t.opts.Batch)
		begun := time.Now()
		errs := t.store.Write(ctx, changes[:n])
		out.Took += time.Since(begun)
		out = out.Plus(t.Record(changes[:n], errs))
		if changes = changes[n:]; silent(errs) {
			break
		}
	}
	return out
}

// ErrorOf returns the error of row i of a Write, which returns no list if none failed.
func ErrorOf(errs []error, i int) error {
	if i >= len(errs) {
		return nil
	}
	return errs[i]
}

// silent reports whether no row of a batch was answered in time.
func silent(errs []error) bool {
	for _, err := range errs {
		if !errors.Is(err, context.DeadlineExceeded) {
			return false
		}
	}
	return len(errs) > 0
}

// Record notes the results of changes that were written: errs is nil, or has one error for each
// change, nil if it was carried out.
func (t *Table[K, V]) Record(changes []Change[K, V], errs []error) Outcome {
	var out Outcome
	t.reportRefused(changes, errs)
	for i, c := range changes {
		if err := ErrorOf(errs, i); err != nil {
			t.Failed(c)
			out.Failed++
			out.because(err)
			continue
		}
		t.recordApplied(c)
		switch c.Op {
		case Add:
			out.Adds++
		case Update:
			out.Updates++
		case Delete:
			out.Deletes++
		}
	}
	return out
}

func (t *Table[K, V]) reportRefused(changes []Change[K, V], errs []error) {
	for i, err := range errs {
		if err == nil {
			continue
		}
		for _, f := range t.refused {
			f(changes[i], err)
		}
	}
}

func (t *Table[K, V]) recordApplied(c Change[K, V]) {
	if len(t.applied) == 0 {
		t.Applied(c)
		return
	}
	e := Applied[K, V]{Change: c}
	e.Before, e.Had = t.Believed(c.Key)
	t.Applied(c)
	for _, f := range t.applied {
		f(e)
	}
}
