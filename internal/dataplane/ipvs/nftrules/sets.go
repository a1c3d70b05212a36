package nftrules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Sets has the methods of package ipset that ipvs mode uses.
type Sets struct{ b *Backend }

// setErrors are the sentinels of package ipset.
var setErrors = map[error]error{
	nft.ErrExist: ipset.ErrExist, nft.ErrNotExist: ipset.ErrNotExist, nft.ErrBusy: ipset.ErrBusy,
	nft.ErrUnsupported: ipset.ErrUnsupported, nft.ErrInterrupted: ipset.ErrInterrupted, nft.ErrInvalid: ipset.ErrInvalid,
}

func setError(err error) error { return translated(err, setErrors) }

// errUnknownSet means that a set is none of ipvs mode.
var errUnknownSet = fmt.Errorf("%w: no set of ours has that name", ipset.ErrInvalid)

// otherElements is the option in the header of a set that has elements of another program.
const otherElements = "elements of another program"

// header returns the header of a set as package ipset has it.
func header(name string, found nft.Set) ipset.Set {
	s := purposes[name].header
	switch want := purposes[name].set; {
	case found.Other != "":
		s.Options = found.Other
	case found == want:
	case found.Shape == want.Shape || found.Data != nft.NoData || typeOf(found.Shape) == "":
		s.Options = "another form"
	default:
		s = ipset.Set{Name: name, Type: typeOf(found.Shape), Timeout: uint32(found.Timeout / time.Second)}
		if s.Type.Hash() {
			s.Family = ipset.Family(purposes[name].family)
		}
		s = s.WithDefaults()
	}
	return s
}

// typeOf returns the type of ipset of a shape, empty where there is none.
func typeOf(s nft.Shape) ipset.Type {
	for of, shape := range shapes {
		if shape == s {
			return of
		}
	}
	return ""
}

// ListSets returns the headers of our sets.
func (s Sets) ListSets(ctx context.Context) ([]ipset.Set, error) {
	found, err := s.b.ruleset(ctx)
	if err != nil {
		return nil, setError(err)
	}
	var out []ipset.Set
	for k, h := range found.Sets {
		if key, ok := setKey(k.Name); !ok || key != k {
			continue
		}
		set := header(k.Name, h)
		if set.Options == "" && s.b.spoilt[k.Name] {
			set.Options = otherElements
		}
		out = append(out, set)
	}
	slices.SortFunc(out, func(a, b ipset.Set) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// List returns the header and the entries of a set. One that another program has put elements in that
// this package does not write has no entries, and is listed from then on as a set to be replaced.
func (s Sets) List(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error) {
	generation, err := s.b.kernel.Generation(ctx)
	if err != nil {
		return ipset.Set{}, nil, setError(err)
	}
	s.b.listed.begin(generation)
	set, entries, err := s.list(ctx, name)
	s.b.listed.sets[name] = err == nil && set.Options == ""
	return set, entries, err
}

// Unchanged reports whether a set has the entries that List has returned, but for what this process has
// written since. It costs a question for the generation of nftables, which counts the transactions of
// all programs. It says no where that is not certain: entries with a time-out end without a transaction,
// and a table of another version has other sets.
func (s Sets) Unchanged(ctx context.Context, name string) bool {
	k, ok := setKey(name)
	if !ok || !s.b.listed.sets[name] || s.b.kernel.of[k.Family] != nil || purposes[name].set.Timeout > 0 {
		return false
	}
	generation, err := s.b.kernel.Generation(ctx)
	return err == nil && s.b.listed.lasts(generation)
}

func (s Sets) list(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error) {
	k, ok := setKey(name)
	if !ok {
		return ipset.Set{}, nil, fmt.Errorf("set %s: %w", name, ipset.ErrNotExist)
	}
	found, list, err := s.b.kernel.Elements(ctx, k)
	switch {
	case errors.Is(err, nft.ErrForeign):
		s.b.spoilt[name] = true
		found.Other, list = otherElements, nil
	case errors.Is(err, nft.ErrNotExist):
		delete(s.b.counts.of, name)
		return ipset.Set{}, nil, setError(err)
	case err != nil:
		return ipset.Set{}, nil, setError(err)
	default:
		delete(s.b.spoilt, name)
	}
	set := header(name, found)
	if set.Options != "" {
		s.b.counts.of[name] = 0
		return set, nil, nil
	}
	if found.Shape.Ranges() {
		list = s.b.rangesOf(name).found(list)
	}
	s.b.count(name, len(list))
	entries := make([]ipset.Entry, len(list))
	for i, e := range list {
		entries[i] = raiseEntry(found.Shape, e)
	}
	slices.SortFunc(entries, ipset.Entry.Compare)
	return set, entries, nil
}

// count notes how many entries a set has. Those that the kernel deletes by itself do not count.
func (b *Backend) count(name string, n int) {
	if purposes[name].set.Timeout > 0 {
		n = 0
	}
	b.counts.of[name] = n
}

// Stat returns the headers of our sets with the numbers of their entries. It asks for no more than the
// generation of the kernel where no other program has written.
func (s Sets) Stat(ctx context.Context) ([]ipset.Info, error) {
	generation, err := s.b.kernel.Generation(ctx)
	if err != nil {
		return nil, setError(err)
	}
	if s.b.allListed(generation) {
		s.b.counts.generation = generation
	}
	if !s.b.counts.lasts(generation) && !time.Now().Before(s.b.counts.notBefore) {
		if err := s.countAll(ctx); err != nil {
			return nil, err
		}
	}
	out := make([]ipset.Info, 0, len(s.b.counts.of))
	for name, n := range s.b.counts.of {
		out = append(out, ipset.Info{Set: purposes[name].header, Elements: uint32(n)})
	}
	slices.SortFunc(out, func(a, b ipset.Info) int { return strings.Compare(a.Set.Name, b.Set.Name) })
	return out, nil
}

// allListed reports whether the entries of all sets were listed since another program wrote.
func (b *Backend) allListed(generation uint32) bool {
	for name := range b.counts.of {
		if !b.listed.sets[name] && purposes[name].set.Timeout == 0 {
			return false
		}
	}
	return b.known && b.listed.lasts(generation)
}

// countAll reads all sets.
func (s Sets) countAll(ctx context.Context) error {
	began, before := time.Now(), maps.Clone(s.b.counts.of)
	defer func() { s.b.counts.rested(time.Since(began), maps.Equal(before, s.b.counts.of)) }()
	found, err := s.b.ruleset(ctx)
	if err != nil {
		return setError(err)
	}
	clear(s.b.counts.of)
	for k := range found.Sets {
		if key, ok := setKey(k.Name); !ok || key != k {
			continue
		}
		if _, _, err := s.list(ctx, k.Name); err != nil && !errors.Is(err, ipset.ErrNotExist) {
			return err
		}
	}
	s.b.counts.generation = found.Generation
	return nil
}

// CreateAll makes sets, all in one transaction. It returns nil where all were made. Linux 5.10 accepts
// the creation of a set that exists with another header, so CreateAll compares the headers.
func (s Sets) CreateAll(ctx context.Context, list ...ipset.Set) []error {
	if len(list) == 0 {
		return nil
	}
	found, err := s.b.ruleset(ctx)
	if err != nil {
		return all(setError(err), len(list))
	}
	s.b.listed.begin(found.Generation)
	errs := make([]error, len(list))
	var pass nft.Pass
	var at []int
	for i, set := range list {
		k, ok := setKey(set.Name)
		header := lowerSet(set)
		if !ok {
			errs[i] = errUnknownSet
		} else if old, exists := found.Sets[k]; exists && old != header {
			errs[i] = fmt.Errorf("set %s %w and differs", set.Name, ipset.ErrExist)
		} else {
			pass.Sets, at = append(pass.Sets, nft.SetChange{Op: nft.Add, Key: k, Set: header}), append(at, i)
			if !exists { // so it has no entries, as a list would show
				s.b.listed.sets[set.Name] = true
			}
		}
	}
	out := s.b.apply(ctx, pass)
	for row, i := range at {
		if out.Sets != nil {
			errs[i] = setError(out.Sets[row])
		}
		if _, counted := s.b.counts.of[list[i].Name]; errs[i] == nil && !counted {
			s.b.counts.of[list[i].Name] = 0
		}
	}
	return orNil(errs)
}

// orNil returns nil where no row has an error.
func orNil(errs []error) []error {
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// Replace gives a set exactly these entries. A set of the same header has them in one transaction.
// One with another header is deleted first, which the kernel refuses while a rule refers to it.
func (s Sets) Replace(ctx context.Context, set ipset.Set, entries []ipset.Entry) error {
	k, ok := setKey(set.Name)
	if !ok {
		return errUnknownSet
	}
	found, err := s.b.ruleset(ctx)
	if err != nil {
		return setError(err)
	}
	header := lowerSet(set)
	op := nft.Add
	if old, exists := found.Sets[k]; exists && old == header {
		op = nft.Update
	} else if exists {
		out := s.b.apply(ctx, nft.Pass{Sets: []nft.SetChange{{Op: nft.Delete, Key: k, Set: header}}})
		if err := out.Err(); err != nil {
			return setError(err)
		}
	}
	pass := nft.Pass{Sets: []nft.SetChange{{Op: op, Key: k, Set: header}}}
	var list []nft.Element
	for _, e := range entries {
		element, err := lowerEntry(e)
		if err != nil {
			return err
		}
		list = append(list, element)
	}
	r := s.b.rangesOf(set.Name)
	placed := list
	if header.Shape.Ranges() {
		placed = r.replaced(list)
	}
	for _, e := range placed {
		pass.Elements = append(pass.Elements, nft.ElementChange{Op: nft.Add, Key: k, Set: header, Element: e})
	}
	if err := s.b.apply(ctx, pass).Err(); err != nil {
		r.loaded = false
		return setError(err)
	}
	delete(s.b.spoilt, set.Name)
	s.b.count(set.Name, len(list))
	return nil
}

// Destroy removes a set with its entries.
func (s Sets) Destroy(ctx context.Context, name string) error {
	k, ok := setKey(name)
	if !ok {
		return errUnknownSet
	}
	out := s.b.apply(ctx, nft.Pass{Sets: []nft.SetChange{{Op: nft.Delete, Key: k, Set: purposes[name].set}}})
	if err := out.Err(); err != nil {
		return setError(err)
	}
	delete(s.b.counts.of, name)
	delete(s.b.listed.sets, name)
	delete(s.b.ranges, name)
	delete(s.b.spoilt, name)
	s.b.collect(ctx)
	return nil
}

// Write changes entries of one set.
func (s Sets) Write(ctx context.Context, set ipset.Set, changes []ipset.Change) []error {
	return s.WriteAll(ctx, ipset.Batch{Set: set, Changes: changes})[0]
}

// WriteAll changes entries of several sets in one transaction. The result of a batch without errors
// is nil.
func (s Sets) WriteAll(ctx context.Context, batches ...ipset.Batch) [][]error {
	w := entryWriter{backend: s.b, errs: make([][]error, len(batches))}
	for i, b := range batches {
		w.errs[i] = make([]error, len(b.Changes))
		w.batch(ctx, i, b)
	}
	out := s.b.apply(ctx, w.pass)
	for row, err := range out.Elements {
		for _, at := range w.rows[row] {
			if err != nil {
				w.errs[at.batch][at.change] = setError(err)
			}
		}
	}
	for i, b := range batches {
		w.done(i, b)
		w.errs[i] = orNil(w.errs[i])
	}
	return w.errs
}

// place is one change of one batch.
type place struct{ batch, change int }

// entryWriter collects the rows of batches, and for each row the changes it is of.
type entryWriter struct {
	backend *Backend
	pass    nft.Pass
	rows    [][]place
	errs    [][]error
	plans   map[int]*rangePlan // of sets with ranges, by batch
}

// elementOp is how a change is written. An entry with a time-out lives for the full time again when
// it is added.
func elementOp(set nft.Set, op ipset.Op) nft.Op {
	switch {
	case op == ipset.OpDelete:
		return nft.Delete
	case set.Timeout > 0:
		return nft.Update
	}
	return nft.Add
}

func (w *entryWriter) batch(ctx context.Context, i int, b ipset.Batch) {
	k, ok := setKey(b.Set.Name)
	header := lowerSet(b.Set)
	if !ok {
		w.errs[i] = all(errUnknownSet, len(b.Changes))
		return
	}
	elements := make([]nft.Element, len(b.Changes))
	for n, c := range b.Changes {
		elements[n], w.errs[i][n] = lowerEntry(c.Entry)
	}
	if header.Shape.Ranges() {
		w.ranges(ctx, i, b, elements)
		return
	}
	for n, c := range b.Changes {
		if w.errs[i][n] == nil {
			w.row(nft.ElementChange{Op: elementOp(header, c.Op), Key: k, Set: header, Element: elements[n]}, place{i, n})
		}
	}
}

func (w *entryWriter) row(c nft.ElementChange, of ...place) {
	w.pass.Elements, w.rows = append(w.pass.Elements, c), append(w.rows, of)
}

// ranges adds the rows of a set with ranges.
func (w *entryWriter) ranges(ctx context.Context, i int, b ipset.Batch, elements []nft.Element) {
	k, _ := setKey(b.Set.Name)
	r := w.backend.rangesOf(b.Set.Name)
	if err := r.load(ctx, w.backend.kernel, k); err != nil {
		w.errs[i] = all(setError(err), len(b.Changes))
		return
	}
	p := r.plan()
	for n, c := range b.Changes {
		if w.errs[i][n] == nil {
			p.change(n, c.Op, elements[n])
		}
	}
	for _, row := range p.rows() {
		var of []place
		for _, n := range row.changes {
			of = append(of, place{i, n})
		}
		w.row(nft.ElementChange{Op: row.op, Key: k, Set: lowerSet(b.Set), Element: row.element}, of...)
	}
	if w.plans == nil {
		w.plans = map[int]*rangePlan{}
	}
	w.plans[i] = p
}

// done follows a batch that was written.
func (w *entryWriter) done(i int, b ipset.Batch) {
	if p := w.plans[i]; p != nil {
		p.done(errors.Join(w.errs[i]...))
	}
	n, counted := w.backend.counts.of[b.Set.Name]
	if !counted {
		return
	}
	for at, c := range b.Changes {
		switch {
		case w.errs[i][at] != nil:
		case c.Op == ipset.OpDelete:
			n--
		default:
			n++
		}
	}
	w.backend.count(b.Set.Name, max(n, 0))
}
