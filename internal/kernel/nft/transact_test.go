package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// script plays the kernel's side of transactions, and goes wrong as it is told.
type script struct {
	sent    int   // transactions
	kinds   []int // messages of the last one
	present map[Element]bool
	rules   int
	// refuse is asked about each element that is added; spoil about each rule.
	refuse func(Element) bool
	// offset is where the refused element of a message begins; nil: the kernel sends none.
	offset func(starts []int, bad int) int
	// whole is asked about each transaction.
	whole func(messages, elements int) error
	// spoiled refuses the rule of that number and all behind it.
	spoiled int
	// owned refuses to delete tables.
	owned bool
}

func (s *script) transact(build func(*writer), check bool) (map[int]refusal, error) {
	w := &writer{}
	build(w)
	if len(w.B) == 0 {
		return nil, nil
	}
	s.sent++
	s.kinds = nil
	out := map[int]refusal{}
	var added []Element
	rules, elements := 0, 0
	for b, n := w.B, 0; len(b) > 0; n++ {
		m, rest, err := nfnetlink.Next(b)
		if err != nil {
			return nil, err
		}
		b = rest
		s.kinds = append(s.kinds, int(m.Kind&0xff))
		switch m.Kind {
		case delTable:
			if s.owned {
				out[n] = refusal{errno: syscall.EPERM}
			}
		case newSetElem:
			list := elementsOf(m)
			elements += len(list)
			added = append(added, list...)
			if bad := slices.IndexFunc(list, s.refuse); bad >= 0 {
				out[n] = refusal{errno: syscall.ENOENT}
				if s.offset != nil {
					out[n] = refusal{syscall.ENOENT, s.offset(startsOf(m, len(list)), bad)}
				}
			}
		case newRule:
			if rules++; s.spoiled > 0 && rules >= s.spoiled {
				out[n] = refusal{errno: syscall.EOPNOTSUPP}
			}
		}
	}
	if s.whole != nil {
		if err := s.whole(len(s.kinds), elements); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 && !check {
		for _, e := range added {
			s.present[e] = true
		}
		s.rules += rules
	}
	return out, nil
}

var plainSet = Set{Shape: AddrPort}

func elementsOf(m nfnetlink.Message) []Element {
	var raw []rawElement
	list, _ := m.Attrs().Get(elemsList)
	list.Each(func(_ uint16, a nfnetlink.Attrs) { raw = append(raw, parseElement(a)) })
	out, ok := parseElements(IPv4, plainSet, raw)
	if !ok {
		panic("a message with elements of another set")
	}
	return out
}

// startsOf finds where elements of one length begin: behind the headers and the names.
func startsOf(m nfnetlink.Message, n int) (out []int) {
	list, _ := m.Attrs().Get(elemsList)
	each := len(list.Raw()) / n
	first := nfnetlink.HeaderLen + len(m.Body) - len(list.Raw())
	for i := range n {
		out = append(out, first+i*each)
	}
	return out
}

// numbered is an element of port n.
func numbered(n int) ElementChange {
	return ElementChange{Add, Key{IPv4, "services"}, plainSet, Element{Addr: netip.MustParseAddr("10.0.0.1"), Protocol: TCP, Port: uint16(n)}}
}

func manyElements(n int) (p Pass) {
	for i := range n {
		p.Elements = append(p.Elements, numbered(i))
	}
	return p
}

func newScript() *script {
	return &script{present: map[Element]bool{}, refuse: func(Element) bool { return false }}
}

// wantElements compares errors and what was written with the ports that fail.
func wantElements(t *testing.T, s *script, p Pass, o Outcome, fails func(port int) bool) {
	t.Helper()
	if o.Elements == nil {
		o.Elements = make([]error, len(p.Elements))
	}
	for i, c := range p.Elements {
		bad := fails(int(c.Element.Port))
		if bad != errors.Is(o.Elements[i], ErrNotExist) || bad == s.present[c.Element] {
			t.Fatalf("%s: %v, written %t", c, o.Elements[i], s.present[c.Element])
		}
	}
}

// TestMessageIsHalved: where the kernel does not say which element it refuses, the number of
// transactions grows with the logarithm of their number.
func TestMessageIsHalved(t *testing.T) {
	fails := func(port int) bool { return port == 0 || port == 700 || port == 701 || port == 1999 }
	s := newScript()
	s.refuse = func(e Element) bool { return fails(int(e.Port)) }
	p := manyElements(2000)
	wantElements(t, s, p, newPass(p, false).apply(s), fails)
	if s.sent > 12 {
		t.Errorf("%d transactions, want at most 12", s.sent)
	}
}

// TestOffsets: the offset that the kernel reports is followed, and is not believed where it is wrong.
func TestOffsets(t *testing.T) {
	fails := func(port int) bool { return port == 5 || port == 300 }
	for _, c := range []struct {
		name   string
		offset func(starts []int, bad int) int
		most   int
	}{
		{"of the element", func(starts []int, bad int) int { return starts[bad] }, 4},
		{"of an attribute in it", func(starts []int, bad int) int { return starts[bad] + 8 }, 4},
		{"of the next element", func(starts []int, bad int) int { return starts[min(bad+1, len(starts)-1)] }, 20},
		{"of the first element", func(starts []int, _ int) int { return starts[0] }, 40},
		{"before all", func([]int, int) int { return 3 }, 12},
		{"behind all", func([]int, int) int { return 1 << 20 }, 30},
		{"negative", func([]int, int) int { return -7 }, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			s.refuse, s.offset = func(e Element) bool { return fails(int(e.Port)) }, c.offset
			p := manyElements(512)
			wantElements(t, s, p, newPass(p, false).apply(s), fails)
			if s.sent > c.most {
				t.Errorf("%d transactions, want at most %d", s.sent, c.most)
			}
		})
	}
}

// TestEveryElementFails takes no more transactions than halving does.
func TestEveryElementFails(t *testing.T) {
	s := newScript()
	s.refuse = func(Element) bool { return true }
	p := manyElements(3000)
	wantElements(t, s, p, newPass(p, false).apply(s), func(int) bool { return true })
	if s.sent > 12 {
		t.Errorf("%d transactions, want at most 12", s.sent)
	}
}

// whole is a pass of all kinds of rows.
func wholePass(elements int) Pass {
	p := manyElements(elements)
	k := Key{IPv4, "x"}
	p.Tables = []TableChange{{Add, IPv4}}
	p.Sets = []SetChange{{Add, Key{IPv4, "services"}, plainSet}}
	p.Chains = []ChainChange{{Add, k, Chain{Rules: []Rule{NewRule(Accept)}}}, {Delete, Key{IPv4, "old"}, Chain{}}}
	return p
}

// TestSmallerTransactions: a transaction that the kernel has no room for is divided. The first has
// everything but deletions of chains, which the last one has.
func TestSmallerTransactions(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOBUFS, syscall.EMSGSIZE, syscall.ENOMEM} {
		s := newScript()
		var done [][]int
		s.whole = func(_, elements int) error {
			if elements > 1024 {
				return errno
			}
			done = append(done, s.kinds)
			return nil
		}
		p := wholePass(5000)
		o := newPass(p, false).apply(s)
		if err := o.Err(); err != nil || len(s.present) != 5000 || s.rules != 1 {
			t.Fatalf("%v: %v, %d elements, %d rules", errno, err, len(s.present), s.rules)
		}
		if len(done) < 5 {
			t.Fatalf("%v: %d transactions", errno, len(done))
		}
		first, last := done[0], done[len(done)-1]
		const delChainKind, newTableKind = 5, 0
		if !slices.Contains(first, newTableKind) || slices.Contains(first, delChainKind) || slices.Contains(last, newTableKind) || last[len(last)-1] != delChainKind {
			t.Errorf("%v: messages of the first transaction %v, of the last %v", errno, first, last)
		}
	}
}

// TestNoRoomAtAll: a row that does not fit alone fails, too.
func TestNoRoomAtAll(t *testing.T) {
	s := newScript()
	s.whole = func(int, int) error { return syscall.ENOBUFS }
	o := newPass(wholePass(2000), false).apply(s)
	for i, err := range slices.Concat(o.Tables, o.Sets, o.Chains, o.Elements) {
		if !errors.Is(err, syscall.ENOBUFS) {
			t.Fatalf("row %d: %v", i, err)
		}
	}
}

// TestSocketFailsLater: rows written before a failure have no error.
func TestSocketFailsLater(t *testing.T) {
	s := newScript()
	broken := errors.New("broken")
	s.whole = func(_, elements int) error {
		switch {
		case elements > 1024:
			return syscall.ENOBUFS
		case len(s.present) >= 2048:
			return broken
		}
		return nil
	}
	p := wholePass(5000)
	state := newPass(p, false)
	o := state.apply(s)
	if o.Tables != nil || o.Sets != nil || o.Chains[0] != nil || !errors.Is(o.Chains[1], broken) || !errors.Is(state.broken, broken) {
		t.Errorf("tables %v, sets %v, chains %v", o.Tables, o.Sets, o.Chains)
	}
	for i, c := range p.Elements {
		if s.present[c.Element] == errors.Is(o.Elements[i], broken) {
			t.Fatalf("%s: %v, written %t", c, o.Elements[i], s.present[c.Element])
		}
	}
}

// TestRowsBehindOneThatSpoils: only the first of the rules that the kernel refuses together is to blame.
func TestRowsBehindOneThatSpoils(t *testing.T) {
	s := newScript()
	s.spoiled = 2
	var p Pass
	for i := range 4 {
		p.Chains = append(p.Chains, ChainChange{Add, Key{IPv4, fmt.Sprintf("c%d", i)}, Chain{Rules: []Rule{NewRule(Accept)}}})
	}
	o := newPass(p, false).apply(s)
	if o.Chains[0] != nil || s.sent != 4 || s.rules != 1 { // each time the second rule spoils
		t.Errorf("%d transactions, %d rules written, errors %v", s.sent, s.rules, o.Chains)
	}
	for _, err := range o.Chains[1:] {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("error %v, want %v", err, ErrUnsupported)
		}
	}
}

func TestCheckIsOneTransaction(t *testing.T) {
	s := newScript()
	if err := newPass(wholePass(mostInTransaction+1000), true).apply(s).Err(); err != nil || s.sent != 1 || len(s.present) != 0 {
		t.Errorf("%v, %d transactions, %d elements", err, s.sent, len(s.present))
	}
}

// replacement is a pass that replaces a table.
func replacement(elements int) Pass {
	p := wholePass(elements)
	p.Tables[0].Op = Update
	return p
}

// TestReplacementIsOneTransaction: packets never meet the rules of a new table without its elements.
func TestReplacementIsOneTransaction(t *testing.T) {
	s := newScript()
	if err := newPass(replacement(3*mostInTransaction), false).apply(s).Err(); err != nil || s.sent != 1 || len(s.present) == 0 {
		t.Errorf("%v, %d transactions, %d elements", err, s.sent, len(s.present))
	}
}

// TestReplacementWithoutRoom: a transaction that deletes the table creates it again, with its rules.
func TestReplacementWithoutRoom(t *testing.T) {
	s := newScript()
	var done [][]int
	s.whole = func(_, elements int) error {
		if elements > mostInTransaction {
			return syscall.EMSGSIZE
		}
		done = append(done, s.kinds)
		return nil
	}
	p := replacement(2 * mostInTransaction)
	if err := newPass(p, false).apply(s).Err(); err != nil || len(done) < 2 || s.sent > 6 {
		t.Fatalf("%v, %d transactions, of which the kernel took %d", err, s.sent, len(done))
	}
	const newTableKind, delTableKind, newRuleKind = 0, 2, 6
	for i, kinds := range done {
		deletes, rules := slices.Contains(kinds, delTableKind), slices.Contains(kinds, newRuleKind)
		again := deletes && slices.Contains(kinds[slices.Index(kinds, delTableKind):], newTableKind)
		if deletes != (i == 0) || deletes != again || deletes != rules {
			t.Errorf("transaction %d: messages %v", i, kinds)
		}
	}
}

// TestTableThatStays gets none of the rows that are for its successor.
func TestTableThatStays(t *testing.T) {
	s := newScript()
	s.owned = true
	p := replacement(2000)
	o := newPass(p, false).apply(s)
	if len(s.present) != 0 || s.rules != 0 || s.sent != 1 {
		t.Errorf("%d elements and %d rules in %d transactions", len(s.present), s.rules, s.sent)
	}
	for _, err := range slices.Concat(o.Tables, o.Sets, o.Chains[:1], o.Elements) {
		if !errors.Is(err, syscall.EPERM) {
			t.Fatalf("error %v, want %v", err, syscall.EPERM)
		}
	}
}
