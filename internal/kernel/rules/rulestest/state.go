package rulestest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// writeAll creates and fills, leaving out row after row with a target that
// is not there, until the rest fits, as a retried transaction does.
func (f *Fake) writeAll(changes []rules.ChainChange, errs []error) {
	texts := make([]string, len(changes)) // in the form of the kernel
	for i, c := range changes {
		if c.Op != rules.Delete && errs[i] == nil {
			texts[i] = rules.Canonical(c.Key.Family, c.Chain.Rules)
		}
	}
	for {
		coming := f.coming(changes, errs)
		bad := false
		for i, c := range changes {
			if c.Op == rules.Delete || errs[i] != nil {
				continue
			}
			errs[i] = f.check(c.Key, texts[i], coming)
			bad = bad || errs[i] != nil
		}
		if !bad {
			break
		}
	}
	for i, c := range changes {
		if c.Op != rules.Delete && errs[i] == nil {
			f.at(c.Key.Family, c.Key.Table).chains[c.Key.Name] = slices.Collect(lines(texts[i]))
		}
	}
}

// coming are the chains that the good rows create.
func (f *Fake) coming(changes []rules.ChainChange, errs []error) map[rules.ChainKey]bool {
	m := map[rules.ChainKey]bool{}
	for i, c := range changes {
		if c.Op != rules.Delete && errs[i] == nil {
			m[c.Key] = true
		}
	}
	return m
}

// check returns why a chain with the rules of the text cannot be written.
func (f *Fake) check(key rules.ChainKey, text string, coming map[rules.ChainKey]bool) error {
	t := f.at(key.Family, key.Table)
	if t == nil {
		return fmt.Errorf("table %s: %w", key.Table, rules.ErrUnsupported)
	}
	there := func(chain string) bool {
		return t.has(chain) || coming[rules.ChainKey{Family: key.Family, Table: key.Table, Name: chain}]
	}
	for line := range lines(text) {
		if err := checkRule(key.Family, key.Table, line, there); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a chain can be jumped to.
func (t *table) has(chain string) bool {
	_, ok := t.chains[chain]
	return ok && !slices.Contains(t.builtin, chain)
}

// deleteAll empties every chain that goes, then removes those that nothing
// refers to any more. A refused one stays as it was: its transaction failed.
func (f *Fake) deleteAll(changes []rules.ChainChange, errs []error) {
	going := map[rules.ChainKey]int{}
	for i, c := range changes {
		if c.Op == rules.Delete && errs[i] == nil && f.at(c.Key.Family, c.Key.Table) != nil {
			going[c.Key] = i
		}
	}
	for f.refuseReferenced(going, errs) {
	}
	for k := range going {
		delete(f.at(k.Family, k.Table).chains, k.Name)
	}
}

// refuseReferenced takes chains that something staying refers to out of
// going, and reports whether there were any.
func (f *Fake) refuseReferenced(going map[rules.ChainKey]int, errs []error) bool {
	for k, row := range going {
		for name, list := range f.at(k.Family, k.Table).chains {
			_, goes := going[rules.ChainKey{Family: k.Family, Table: k.Table, Name: name}]
			if !goes && slices.ContainsFunc(list, func(r string) bool { return endsIn(r, k.Name) }) {
				errs[row] = fmt.Errorf("referenced by chain %s: %w", name, rules.ErrBusy)
				delete(going, k)
				return true
			}
		}
	}
	return false
}

func endsIn(rule, target string) bool { return slices.Contains(rules.Targets(rule), target) }

// lines yields the non-empty lines of text.
func lines(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for l := range strings.SplitSeq(text, "\n") {
			if l != "" && !yield(l) {
				return
			}
		}
	}
}

// saveTables is the dump of one family, tables without any content left out.
func (f *Fake) saveTables(family rules.Family) []rules.SaveTable {
	var out []rules.SaveTable
	for _, name := range slices.Sorted(maps.Keys(rules.Hooks())) {
		if t := f.at(family, name); t != nil && t.used() {
			out = append(out, rules.SaveTable{Name: name, Chains: t.save()})
		}
	}
	return out
}

func (t *table) used() bool {
	for _, list := range t.chains {
		if len(list) > 0 {
			return true
		}
	}
	return len(t.chains) > len(t.builtin)
}

// save lists built-in chains in hook order, then user chains by name.
func (t *table) save() []rules.SaveChain {
	var out []rules.SaveChain
	for _, name := range t.builtin {
		out = append(out, rules.SaveChain{Name: name, Policy: "ACCEPT", Rules: slices.Clone(t.chains[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		if !slices.Contains(t.builtin, name) {
			out = append(out, rules.SaveChain{Name: name, Policy: "-", Rules: slices.Clone(t.chains[name])})
		}
	}
	return out
}
