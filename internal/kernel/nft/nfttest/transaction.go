package nfttest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
)

// transaction writes a pass to a state: all of it, or again without the rows that are refused.
type transaction struct {
	nft.Pass
	failed  nft.Outcome // one error a row
	planned map[string]error
	sent    bool // a row remained to be written
	refused int  // rows of the run under way
}

func newTransaction(p nft.Pass, planned map[string]error) *transaction {
	return &transaction{Pass: p, planned: planned, failed: nft.Outcome{
		Tables: make([]error, len(p.Tables)), Sets: make([]error, len(p.Sets)),
		Chains: make([]error, len(p.Chains)), Elements: make([]error, len(p.Elements)),
	}}
}

// run returns the state after the transaction.
func (t *transaction) run(from kernel) kernel {
	for {
		k := from.clone()
		t.refused, t.sent = 0, false
		t.tables(&k)
		t.chains(&k)
		t.sets(&k)
		t.elements(&k)
		t.rules(&k)
		t.deleteChains(&k)
		if t.refused == 0 {
			return k
		}
	}
}

// each writes the rows that no earlier run refused.
func each[C interface {
	fmt.Stringer
	Check() error
}](t *transaction, rows []C, errs []error, write func(C) error) {
	for i, c := range rows {
		if errs[i] != nil {
			continue
		}
		t.sent = true
		err := errors.Join(t.planned[c.String()], c.Check())
		if err == nil {
			err = write(c)
		}
		if err != nil {
			errs[i] = fmt.Errorf("%s: %w", c, err)
			t.refused++
		}
	}
}

// outcome returns the errors, nil for kinds without any.
func (t *transaction) outcome() nft.Outcome {
	none := func(errs []error) []error {
		if errors.Join(errs...) == nil {
			return nil
		}
		return errs
	}
	return nft.Outcome{Tables: none(t.failed.Tables), Sets: none(t.failed.Sets), Chains: none(t.failed.Chains), Elements: none(t.failed.Elements)}
}

func (t *transaction) tables(k *kernel) {
	each(t, t.Tables, t.failed.Tables, func(c nft.TableChange) error {
		if _, exists := k.tables[c.Family]; exists && c.Op == nft.Add {
			return nil
		}
		delete(k.tables, c.Family)
		for key := range k.sets {
			if key.Family == c.Family {
				delete(k.sets, key)
			}
		}
		for key := range k.chains {
			if key.Family == c.Family {
				delete(k.chains, key)
			}
		}
		if c.Op != nft.Delete {
			k.tables[c.Family] = nft.Version
		}
		return nil
	})
}

func (k *kernel) hasTable(f nft.Family) error {
	if _, exists := k.tables[f]; !exists {
		return fmt.Errorf("table %w", nft.ErrNotExist)
	}
	return nil
}

// chains creates chains, and empties all of the pass.
func (t *transaction) chains(k *kernel) {
	each(t, t.Chains, t.failed.Chains, func(c nft.ChainChange) error {
		old, exists := k.chains[c.Key]
		switch {
		case c.Op == nft.Delete:
			if exists {
				k.chains[c.Key] = nft.Chain{Base: old.Base}
			}
			return nil
		case k.hasTable(c.Key.Family) != nil:
			return k.hasTable(c.Key.Family)
		case exists && c.Chain.Base == nft.Base{}: // the kernel does not compare
			k.chains[c.Key] = nft.Chain{Base: old.Base}
			return nil
		case exists && old.Base == nft.Base{} && c.Chain.Base != nft.Base{} && k.refers(c.Key):
			return nft.ErrBusy
		}
		k.chains[c.Key] = nft.Chain{Base: c.Chain.Base}
		return nil
	})
}

func (t *transaction) sets(k *kernel) {
	each(t, t.Sets, t.failed.Sets, func(c nft.SetChange) error {
		old, exists := k.sets[c.Key]
		switch {
		case c.Op == nft.Delete && k.uses(c.Key):
			return nft.ErrBusy
		case c.Op == nft.Delete:
			delete(k.sets, c.Key)
			return nil
		case k.hasTable(c.Key.Family) != nil:
			return k.hasTable(c.Key.Family)
		case exists && old.header != c.Set:
			return nft.ErrExist
		case !exists || c.Op == nft.Update:
			k.sets[c.Key] = set{c.Set, map[nft.Element]member{}}
		}
		return nil
	})
}

// elements deletes elements of a set before it adds others.
func (t *transaction) elements(k *kernel) {
	for _, remove := range []bool{true, false} {
		each(t, t.Elements, t.failed.Elements, func(c nft.ElementChange) error {
			s, exists := k.sets[c.Key]
			switch {
			case remove:
				if c.Op != nft.Add {
					delete(s.elements, c.Element.Key())
				}
				return nil
			case c.Op == nft.Delete:
				return nil
			case !exists:
				return nft.ErrNotExist
			case s.header != c.Set:
				return nft.ErrInvalid
			}
			return k.add(c.Key, s, c.Element)
		})
	}
}

func (k *kernel) add(key nft.Key, s set, e nft.Element) error {
	if to := e.Verdict.Chain; to != "" {
		if c, exists := k.chains[nft.Key{Family: key.Family, Name: to}]; !exists {
			return nft.ErrNotExist
		} else if c.Base != (nft.Base{}) {
			return nft.ErrUnsupported
		}
	}
	if s.header.Shape == nft.AddrPortNet || s.header.Shape == nft.Net {
		for other := range s.elements {
			if overlaps(e.Key(), other) {
				return nft.ErrOverlap
			}
		}
	}
	m := member{element: e}
	if s.header.Timeout > 0 {
		m.expires = time.Now().Add(s.header.Timeout)
		if old, exists := s.elements[e.Key()]; exists { // an addition does not prolong
			m.expires = old.expires
		}
	}
	s.elements[e.Key()] = m
	return nil
}

// overlaps reports whether two elements that differ have an address in common.
func overlaps(a, b nft.Element) bool {
	if a == b || !a.Net.IsValid() || !a.Net.Overlaps(b.Net) {
		return false
	}
	a.Net = b.Net
	return a == b
}

func (t *transaction) rules(k *kernel) {
	each(t, t.Chains, t.failed.Chains, func(c nft.ChainChange) error {
		if c.Op == nft.Delete {
			return nil
		}
		for _, r := range c.Chain.Rules {
			if err := k.checkRule(c.Key, r); err != nil {
				return err
			}
		}
		empty := k.chains[c.Key]
		k.chains[c.Key] = nft.Chain{Base: empty.Base, Rules: slices.Clone(c.Chain.Rules)}
		err := k.validate(c.Key)
		if err != nil {
			k.chains[c.Key] = empty
		}
		return err
	})
}

// lookup is a statement's question to a set.
func lookup(s nft.Statement) (key nft.Fields, name string, data nft.Data, ok bool) {
	switch s := s.(type) {
	case nft.MatchSet:
		return s.Key, s.Set, nft.NoData, true
	case nft.VerdictMap:
		return s.Key, s.Map, nft.Verdicts, true
	case nft.DestinationMap:
		return s.Key, s.Map, nft.Destinations, true
	}
	return key, "", 0, false
}

// checkRule refuses a rule that refers to what does not exist, or to what has another form.
func (k *kernel) checkRule(chain nft.Key, r nft.Rule) error {
	for _, s := range r.Statements {
		if v, ok := s.(nft.Verdict); ok && v.Chain != "" {
			to, exists := k.chains[nft.Key{Family: chain.Family, Name: v.Chain}]
			if !exists {
				return nft.ErrNotExist
			}
			if to.Base != (nft.Base{}) {
				return nft.ErrUnsupported
			}
		}
		key, name, data, ok := lookup(s)
		if !ok {
			continue
		}
		asked, exists := k.sets[nft.Key{Family: chain.Family, Name: name}]
		switch {
		case !exists:
			return nft.ErrNotExist
		case data != nft.NoData && asked.header.Data != data, width(key) != widthOf(asked.header.Shape):
			return nft.ErrInvalid
		}
	}
	return nil
}

// width is the form of a key: how many addresses and how many other fields it has. The kernel knows
// no more of it than a length.
func width(key nft.Fields) (w [2]int) {
	for _, f := range key {
		switch f {
		case nft.SourceAddr, nft.DestinationAddr:
			w[0]++
		case nft.Protocol, nft.SourcePort, nft.DestinationPort:
			w[1]++
		}
	}
	return w
}

func widthOf(s nft.Shape) [2]int {
	return map[nft.Shape][2]int{
		nft.Addr: {1, 0}, nft.Net: {1, 0}, nft.AddrPort: {1, 2}, nft.AddrPortAddr: {2, 2}, nft.AddrPortNet: {2, 2},
		nft.Port: {0, 1}, nft.ProtocolPort: {0, 2},
	}[s]
}

// validate refuses rules that translate addresses where the kernel does not, in what base chains lead
// to, and loops.
func (k *kernel) validate(changed nft.Key) error {
	for key, c := range k.chains {
		if key.Family == changed.Family && c.Base != (nft.Base{}) {
			if err := k.walk(key, c.Base, nil); err != nil {
				return err
			}
		}
	}
	return k.walk(changed, k.chains[changed].Base, nil)
}

func (k *kernel) walk(key nft.Key, base nft.Base, path []nft.Key) error {
	if slices.Contains(path, key) {
		return nft.ErrInvalid
	}
	path = append(path, key)
	for _, r := range k.chains[key].Rules {
		for _, s := range r.Statements {
			if !allowed(s, base) {
				return nft.ErrUnsupported
			}
			for _, to := range k.leads(key.Family, s) {
				if err := k.walk(to, base, path); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// leads returns the chains that a statement may lead to.
func (k *kernel) leads(f nft.Family, s nft.Statement) (out []nft.Key) {
	switch s := s.(type) {
	case nft.Verdict:
		if s.Chain != "" {
			out = append(out, nft.Key{Family: f, Name: s.Chain})
		}
	case nft.VerdictMap:
		for _, m := range k.sets[nft.Key{Family: f, Name: s.Map}].elements {
			if to := m.element.Verdict.Chain; to != "" {
				out = append(out, nft.Key{Family: f, Name: to})
			}
		}
	}
	return out
}

// allowed reports whether a statement may be met from a base chain; from no base chain all may.
func allowed(s nft.Statement, b nft.Base) bool {
	switch s.(type) {
	case nft.DestinationMap, nft.KeepDestination:
		return b == nft.Base{} || b.Type == "nat" && (b.Hook == "prerouting" || b.Hook == "output")
	case nft.Masquerade:
		return b == nft.Base{} || b.Type == "nat" && b.Hook == "postrouting"
	}
	return true
}

func (t *transaction) deleteChains(k *kernel) {
	each(t, t.Chains, t.failed.Chains, func(c nft.ChainChange) error {
		if c.Op != nft.Delete {
			return nil
		}
		if k.refers(c.Key) {
			return nft.ErrBusy
		}
		delete(k.chains, c.Key)
		return nil
	})
}

// uses reports whether a rule asks a set.
func (k *kernel) uses(s nft.Key) bool {
	for key, c := range k.chains {
		for _, r := range c.Rules {
			for _, statement := range r.Statements {
				if _, name, _, ok := lookup(statement); ok && key.Family == s.Family && name == s.Name {
					return true
				}
			}
		}
	}
	return false
}

// refers reports whether a rule or an element leads to a chain.
func (k *kernel) refers(chain nft.Key) bool {
	for key, c := range k.chains {
		for _, r := range c.Rules {
			if key.Family == chain.Family && slices.ContainsFunc(r.Statements, func(s nft.Statement) bool {
				v, ok := s.(nft.Verdict)
				return ok && v.Chain == chain.Name
			}) {
				return true
			}
		}
	}
	for key, s := range k.sets {
		for _, m := range s.elements {
			if key.Family == chain.Family && m.element.Verdict.Chain == chain.Name {
				return true
			}
		}
	}
	return false
}
