package nftrules

import (
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
)

// draft is the table that is to replace one of another version.
type draft struct {
	sets    map[nft.Key]nft.Set
	chains  map[nft.Key]nft.Chain
	members map[member]nft.ElementChange
	// lacks is why rows are missing that the kernel may take another time; nil for none.
	lacks error
}

// member names an element by its set and its key.
type member struct {
	set nft.Key
	key nft.Element
}

func memberOf(c nft.ElementChange) member { return member{c.Key, c.Element.Key()} }

func setKeyOf(c nft.SetChange) nft.Key { return c.Key }

func chainKeyOf(c nft.ChainChange) nft.Key { return c.Key }

// show puts the draft in the place of its table in a reading.
func (t *draft) show(f nft.Family, r nft.Ruleset) {
	delete(r.Tables, f)
	maps.DeleteFunc(r.Chains, func(k nft.Key, _ nft.Chain) bool { return k.Family == f })
	maps.DeleteFunc(r.Sets, func(k nft.Key, _ nft.Set) bool { return k.Family == f })
	if len(t.sets)+len(t.chains) > 0 {
		r.Tables[f] = nft.Version
	}
	maps.Copy(r.Chains, t.chains)
	maps.Copy(r.Sets, t.sets)
}

// with returns the draft after a pass.
func (t *draft) with(p nft.Pass) *draft {
	next := &draft{sets: map[nft.Key]nft.Set{}, chains: map[nft.Key]nft.Chain{}, members: map[member]nft.ElementChange{}}
	maps.Copy(next.sets, t.sets)
	maps.Copy(next.chains, t.chains)
	maps.Copy(next.members, t.members)
	for _, c := range p.Sets {
		if c.Op != nft.Add {
			maps.DeleteFunc(next.members, func(m member, _ nft.ElementChange) bool { return m.set == c.Key })
		}
		putOrDelete(next.sets, c.Op, c.Key, c.Set)
	}
	for _, c := range p.Chains {
		putOrDelete(next.chains, c.Op, c.Key, c.Chain)
	}
	for _, c := range p.Elements {
		putOrDelete(next.members, c.Op, memberOf(c), nft.ElementChange{Op: nft.Add, Key: c.Key, Set: c.Set, Element: c.Element})
	}
	return next
}

func putOrDelete[K comparable, V any](m map[K]V, op nft.Op, k K, v V) {
	if op == nft.Delete {
		delete(m, k)
	} else {
		m[k] = v
	}
}

// added returns the elements that a pass has added to the draft.
func (t *draft) added(p nft.Pass) (out []nft.ElementChange) {
	for _, c := range p.Elements {
		if in, there := t.members[memberOf(c)]; there && c.Op != nft.Delete {
			out = append(out, in)
		}
	}
	return out
}

// pass returns what replaces the table by the draft, with some of its elements.
func (t *draft) pass(f nft.Family, elements iter.Seq[nft.ElementChange]) nft.Pass {
	p := nft.Pass{Tables: []nft.TableChange{{Op: nft.Update, Family: f}}, Elements: slices.Collect(elements)}
	for _, k := range slices.SortedFunc(maps.Keys(t.sets), nft.Key.Compare) {
		p.Sets = append(p.Sets, nft.SetChange{Op: nft.Add, Key: k, Set: t.sets[k]})
	}
	for _, k := range slices.SortedFunc(maps.Keys(t.chains), nft.Key.Compare) {
		p.Chains = append(p.Chains, nft.ChainChange{Op: nft.Add, Key: k, Chain: t.chains[k]})
	}
	return p
}

// revert takes out the rows that failed. A chain is as it was before.
func (t *draft) revert(failed failures, before *draft) {
	for k := range failed.sets {
		delete(t.sets, k)
		maps.DeleteFunc(t.members, func(m member, _ nft.ElementChange) bool { return m.set == k })
	}
	for k := range failed.chains {
		old, existed := before.chains[k]
		if delete(t.chains, k); existed {
			t.chains[k] = old
		}
	}
	for m := range failed.members {
		delete(t.members, m)
	}
}

// failures are the errors of the rows of a pass.
type failures struct {
	sets, chains map[nft.Key]error
	members      map[member]error
}

func failuresOf(p nft.Pass, out nft.Outcome) failures {
	return failures{
		errorsBy(p.Sets, setKeyOf, out.Sets), errorsBy(p.Chains, chainKeyOf, out.Chains), errorsBy(p.Elements, memberOf, out.Elements),
	}
}

func errorsBy[C any, K comparable](rows []C, key func(C) K, errs []error) map[K]error {
	by := map[K]error{}
	for i, err := range errs {
		if err != nil {
			by[key(rows[i])] = err
		}
	}
	return by
}

// in returns the errors of the rows of another pass.
func (f failures) in(p nft.Pass) nft.Outcome {
	return nft.Outcome{
		Sets: errorsIn(p.Sets, setKeyOf, f.sets), Chains: errorsIn(p.Chains, chainKeyOf, f.chains), Elements: errorsIn(p.Elements, memberOf, f.members),
	}
}

func errorsIn[C any, K comparable](rows []C, key func(C) K, by map[K]error) (out []error) {
	for i, c := range rows {
		out = noted(out, len(rows), i, by[key(c)])
	}
	return out
}

// outside returns the errors of all rows that another pass does not have.
func (f failures) outside(p nft.Pass) error {
	return errors.Join(errorsOutside(p.Sets, setKeyOf, f.sets), errorsOutside(p.Chains, chainKeyOf, f.chains), errorsOutside(p.Elements, memberOf, f.members))
}

func errorsOutside[C any, K comparable](rows []C, key func(C) K, by map[K]error) error {
	rest := maps.Clone(by)
	for _, c := range rows {
		delete(rest, key(c))
	}
	return errors.Join(slices.Collect(maps.Values(rest))...)
}

// noted puts an error into the errors of n rows, which are nil without any.
func noted(errs []error, n, at int, err error) []error {
	if err == nil {
		return errs
	}
	if errs == nil {
		errs = make([]error, n)
	}
	errs[at] = err
	return errs
}

// share is the part of a pass that is about one family, with the places of its rows.
type share struct {
	nft.Pass
	tables, sets, chains, elements []int
}

func shareOf(p nft.Pass, f nft.Family) (s share) {
	s.Tables, s.tables = rowsOf(p.Tables, func(c nft.TableChange) bool { return c.Family == f })
	s.Sets, s.sets = rowsOf(p.Sets, func(c nft.SetChange) bool { return c.Key.Family == f })
	s.Chains, s.chains = rowsOf(p.Chains, func(c nft.ChainChange) bool { return c.Key.Family == f })
	s.Elements, s.elements = rowsOf(p.Elements, func(c nft.ElementChange) bool { return c.Key.Family == f })
	return s
}

func (s share) empty() bool {
	return len(s.Tables)+len(s.Sets)+len(s.Chains)+len(s.Elements) == 0
}

func rowsOf[C any](rows []C, which func(C) bool) (out []C, at []int) {
	for i, c := range rows {
		if which(c) {
			out, at = append(out, c), append(at, i)
		}
	}
	return out, at
}

// report puts the errors of the part into the outcome of the whole pass.
func (s share) report(to *nft.Outcome, whole nft.Pass, part nft.Outcome) {
	to.Tables = placed(to.Tables, len(whole.Tables), s.tables, part.Tables)
	to.Sets = placed(to.Sets, len(whole.Sets), s.sets, part.Sets)
	to.Chains = placed(to.Chains, len(whole.Chains), s.chains, part.Chains)
	to.Elements = placed(to.Elements, len(whole.Elements), s.elements, part.Elements)
}

func placed(to []error, n int, at []int, from []error) []error {
	for i, err := range from {
		to = noted(to, n, at[i], err)
	}
	return to
}
