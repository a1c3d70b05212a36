package nft

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Ruleset is everything in our tables but the elements of sets, as it was at one moment.
type Ruleset struct {
	// Generation is the number of the last transaction before the reading.
	Generation uint32
	// Tables has the version of each table that exists; 0 is a table that this program did not
	// write, or that is dormant.
	Tables map[Family]uint32
	Sets   map[Key]Set
	Chains map[Key]Chain
}

// attempts bounds how often a reading begins again because the tables changed meanwhile.
const attempts = 4

// errAbsent is the answer of a kernel that does not have nf_tables.
var errAbsent = errors.New("no nf_tables")

// session reads and writes over one socket.
type session struct{ *nfnetlink.Session }

// again repeats a reading that met a change.
func again[T any](read func() (T, error)) (T, error) {
	for attempt := 1; ; attempt++ {
		out, err := read()
		if !errors.Is(err, ErrInterrupted) || attempt == attempts {
			return out, err
		}
	}
}

// still reads while the generation stays the same.
func still[T any](s session, read func(generation uint32) (T, error)) (T, error) {
	return again(func() (T, error) {
		before, err := s.generation()
		if err != nil {
			var none T
			return none, err
		}
		out, err := read(before)
		if err != nil {
			return out, err
		}
		if after, err := s.generation(); err != nil || after != before {
			return out, errors.Join(err, interruptedIf(err == nil))
		}
		return out, nil
	})
}

func interruptedIf(yes bool) error {
	if yes {
		return ErrInterrupted
	}
	return nil
}

// ruleset reads everything but elements.
func (s session) ruleset() (Ruleset, error) {
	out, err := still(s, s.rulesetOnce)
	if errors.Is(err, errAbsent) {
		return newRuleset(0), nil
	}
	return out, err
}

func newRuleset(generation uint32) Ruleset {
	return Ruleset{generation, map[Family]uint32{}, map[Key]Set{}, map[Key]Chain{}}
}

func (s session) rulesetOnce(generation uint32) (Ruleset, error) {
	out := newRuleset(generation)
	err := s.dump(getTable, newTable, 0, func(f Family, a nfnetlink.Attrs) {
		out.Tables[f] = parseVersion(a)
	})
	for f := range out.Tables {
		err = errors.Join(err, s.dump(getChain, newChain, f, func(got Family, a nfnetlink.Attrs) {
			if got == f {
				out.Chains[Key{f, a.Text(chainName)}] = Chain{Base: parseBase(a)}
			}
		}))
		err = errors.Join(err, s.dump(getRule, newRule, f, func(_ Family, a nfnetlink.Attrs) {
			k := Key{f, a.Text(ruleChain)}
			c := out.Chains[k]
			c.Rules = append(c.Rules, parseRule(f, a))
			out.Chains[k] = c
		}))
		err = errors.Join(err, s.dump(getSet, newSet, f, func(_ Family, a nfnetlink.Attrs) {
			if name := a.Text(setName); !strings.HasPrefix(name, "__") { // of a rule, without a name
				out.Sets[Key{f, name}] = parseSet(f, a)
			}
		}))
		if err != nil {
			break
		}
	}
	return out, err
}

// ErrForeign means that a set has an element that this package does not write. To update the set,
// and add what is wanted again, removes it.
var ErrForeign = errors.New("has an element of another program")

// elements reads those of one set, whose header may have changed, too.
func (s session) elements(k Key) (Set, []Element, error) {
	type found struct {
		set  Set
		list []Element
	}
	out, err := still(s, func(uint32) (found, error) {
		set, err := s.set(k)
		if err != nil {
			return found{}, err
		}
		var list []rawElement
		err = s.dumpNamed(getSetElem, newSetElem, k, elemsSet, func(a nfnetlink.Attrs) {
			if nest, ok := a.Get(elemsList); ok {
				nest.Each(func(_ uint16, e nfnetlink.Attrs) { list = append(list, parseElement(e)) })
			}
		})
		if err != nil {
			return found{}, err
		}
		if set.Other != "" {
			return found{set: set}, nil
		}
		elements, ok := parseElements(k.Family, set, list)
		if !ok {
			return found{set: set}, ErrForeign
		}
		return found{set, elements}, nil
	})
	if errors.Is(err, errAbsent) {
		err = ErrNotExist
	}
	return out.set, out.list, err
}

// set reads the header of one set.
func (s session) set(k Key) (out Set, err error) {
	seen := false
	err = s.ask(func(b *nfnetlink.Builder) {
		b.Begin(getSet, 0, s.Seq, uint8(k.Family), 0)
		b.Text(setTable, TableName)
		b.Text(setName, k.Name)
		b.End()
	}, newSet, false, func(_ Family, a nfnetlink.Attrs) {
		out, seen = parseSet(k.Family, a), true
	})
	switch {
	case errors.Is(err, syscall.ENOENT):
		return out, ErrNotExist
	case err == nil && !seen:
		return out, fmt.Errorf("%w: no answer about the set", nfnetlink.ErrMalformed)
	}
	return out, err
}

// generation reads the number of the last transaction.
func (s session) generation() (generation uint32, err error) {
	err = s.ask(func(b *nfnetlink.Builder) {
		b.Begin(getGen, 0, s.Seq, 0, 0)
		b.End()
	}, newGen, false, func(_ Family, a nfnetlink.Attrs) { generation = a.Number(genID) })
	return generation, err
}

// dump visits all objects of a kind in our table of a family; of our tables themselves where the
// family is 0. A kernel that does not know the filter lists those of other tables as well.
func (s session) dump(question, answer uint16, f Family, visit func(Family, nfnetlink.Attrs)) error {
	err := s.ask(func(b *nfnetlink.Builder) {
		b.Begin(question, nfnetlink.Dump, s.Seq, uint8(f), 0)
		if f != 0 {
			b.Text(tableName, TableName)
		}
		b.End()
	}, answer, true, func(got Family, a nfnetlink.Attrs) {
		if a.Text(tableName) == TableName && (got == IPv4 || got == IPv6) && (f == 0 || got == f) {
			visit(got, a)
		}
	})
	return gone(err)
}

// dumpNamed visits the answers about one object in our table.
func (s session) dumpNamed(question, answer uint16, k Key, attr uint16, visit func(nfnetlink.Attrs)) error {
	err := s.ask(func(b *nfnetlink.Builder) {
		b.Begin(question, nfnetlink.Dump, s.Seq, uint8(k.Family), 0)
		b.Text(tableName, TableName)
		b.Text(attr, k.Name)
		b.End()
	}, answer, true, func(_ Family, a nfnetlink.Attrs) { visit(a) })
	return gone(err)
}

// gone is the error of a dump of something that existed before: a change interrupted the reading.
func gone(err error) error {
	if errors.Is(err, syscall.ENOENT) {
		return ErrInterrupted
	}
	return err
}

// ask sends a question, and visits the answers of a kind until there are no more; many means that
// the kernel tells where they end.
func (s session) ask(build func(*nfnetlink.Builder), answer uint16, many bool, visit func(Family, nfnetlink.Attrs)) error {
	var b nfnetlink.Builder
	s.Seq++
	build(&b)
	if err := s.Send(b.B); err != nil {
		return err
	}
	interrupted := false
	var malformed error
	err := s.Answers(func(m nfnetlink.Message) (done bool, err error) {
		if m.Seq != s.Seq {
			return false, nil
		}
		interrupted = interrupted || m.Kind != nfnetlink.Error && m.Flags&nfnetlink.Interrupted != 0
		switch m.Kind {
		case nfnetlink.Error, nfnetlink.Done:
			errno, err := m.Verdict()
			return true, errors.Join(err, readError(errno))
		case answer:
		default:
			return false, nil
		}
		a := m.Attrs()
		if a.Err() == nil {
			visit(Family(m.Family()), a)
		}
		malformed = errors.Join(malformed, a.Err())
		return !many, nil
	})
	return errors.Join(err, malformed, interruptedIf(err == nil && interrupted))
}

// readError is the verdict on a question. nfnetlink answers EINVAL for a subsystem that it does not
// have and cannot load (nfnetlink_rcv_msg).
func readError(errno syscall.Errno) error {
	switch errno {
	case syscall.EINVAL, syscall.EOPNOTSUPP:
		return errAbsent
	case syscall.ENOENT:
		return errno
	}
	return wholeError(errno)
}

// transact implements transport.
func (s session) transact(build func(*writer), check bool) (map[int]refusal, error) {
	w := &writer{seq: s.Seq}
	w.limit(nfnetlink.BatchBegin)
	begin := w.seq
	build(w)
	if w.seq == begin {
		return nil, nil
	}
	w.Acknowledge()
	last := w.seq
	if !check {
		w.limit(nfnetlink.BatchEnd)
	}
	s.Seq = w.seq
	if err := s.Send(w.B); err != nil {
		return nil, err
	}
	refused := map[int]refusal{}
	err := s.Answers(func(m nfnetlink.Message) (done bool, err error) {
		if m.Seq-begin > last-begin || m.Kind != nfnetlink.Error {
			return false, nil
		}
		errno, err := m.Verdict()
		if m.Seq == begin { // about the transaction; it comes before the verdicts on messages
			return true, errors.Join(err, wholeError(errno))
		}
		if errno != 0 {
			offset, _ := m.Offset()
			refused[int(m.Seq-begin-1)] = refusal{errno, offset}
		}
		return m.Seq == last, err
	})
	return refused, err
}
