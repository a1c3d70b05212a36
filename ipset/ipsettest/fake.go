package ipsettest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Fake is an ipset subsystem in memory. Its zero value is not usable; use New.
// Unlike a Handle it may be used by several goroutines, so that a test can look
// while the code under test runs.
type Fake struct {
	mu     sync.Mutex
	slots  []*set // in the kernel's order: a destroyed set leaves a hole, the next create fills it
	faults []*armed
	counts Counts
	closed bool
}

// set is the state of one set. The members map an entry without its NoMatch bit
// to that bit, because the kernel keeps one member for both.
type set struct {
	header     ipset.Set
	references uint32
	members    map[ipset.Entry]bool
	expires    map[ipset.Entry]time.Time // end of each entry of a set with a time-out
}

// Counts has the numbers of calls of a Fake. Rows are the changes given to Write
// that reached the set; each also counts as a call of its operation.
type Counts struct {
	Calls  map[ipset.Op]int
	Writes int
	Rows   int
}

// New returns an empty fake.
func New() *Fake { return &Fake{counts: Counts{Calls: map[ipset.Op]int{}}} }

// Close marks the fake as closed; later calls fail.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// Probe reports a kernel that speaks protocol 7 and 6.
func (f *Fake) Probe(ctx context.Context) (ipset.Version, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter(ctx, ipset.OpProbe, "", ""); err != nil {
		return ipset.Version{}, &ipset.Error{Op: ipset.OpProbe, Err: err}
	}
	return ipset.Version{Protocol: 7, Min: 6}, nil
}

// Revision reports 1 for every supported type.
func (f *Fake) Revision(ctx context.Context, t ipset.Type, _ ipset.Family) (uint8, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.enter(ctx, ipset.OpProbe, "", string(t))
	if err == nil && !t.Supported() {
		err = ipset.ErrUnsupported
	}
	if err != nil {
		return 0, &ipset.Error{Op: ipset.OpProbe, Entry: string(t), Err: err}
	}
	return 1, nil
}

// Counts returns a copy of the counters.
func (f *Fake) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counts
	c.Calls = make(map[ipset.Op]int, len(f.counts.Calls))
	for op, n := range f.counts.Calls {
		c.Calls[op] = n
	}
	return c
}

// Refer adds n references to a set, as rules do; a negative n removes them.
// While there are any, the set can be neither destroyed nor renamed.
func (f *Fake) Refer(name string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.find(name)
	if err != nil || int(s.references)+n < 0 {
		panic(fmt.Sprintf("ipsettest: refer %s by %d: no such set or reference", name, n))
	}
	s.references = uint32(int(s.references) + n)
}

// Plant puts a set into the kernel behind the back of the code under test, with
// any header, options and unsupported types included.
func (f *Fake) Plant(header ipset.Set, entries ...ipset.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(header.Name)
	s := f.insert(header)
	for _, e := range entries {
		s.put(e)
	}
}

// String prints all sets as `ipset save` would, by name and in order. Sets of
// unsupported types are printed by their header.
func (f *Fake) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var contents []ipset.Contents
	for _, s := range f.live() {
		contents = append(contents, ipset.Contents{Set: s.header, Entries: s.list()})
	}
	var b strings.Builder
	_ = ipset.WriteSave(&b, contents...) // a Builder never fails
	return b.String()
}

// find returns a set by name.
func (f *Fake) find(name string) (*set, error) {
	for _, s := range f.slots {
		if s != nil && s.header.Name == name {
			s.expire()
			return s, nil
		}
	}
	return nil, fmt.Errorf("set %w", ipset.ErrNotExist)
}

// live returns the sets in the kernel's order.
func (f *Fake) live() []*set {
	sets := slices.DeleteFunc(slices.Clone(f.slots), func(s *set) bool { return s == nil })
	for _, s := range sets {
		s.expire()
	}
	return sets
}

// insert puts an empty set into the first hole.
func (f *Fake) insert(header ipset.Set) *set {
	s := &set{header: header, members: map[ipset.Entry]bool{}, expires: map[ipset.Entry]time.Time{}}
	if i := slices.Index(f.slots, nil); i >= 0 {
		f.slots[i] = s
	} else {
		f.slots = append(f.slots, s)
	}
	return s
}

// remove deletes a set, if it is there.
func (f *Fake) remove(name string) {
	for i, s := range f.slots {
		if s != nil && s.header.Name == name {
			f.slots[i] = nil
		}
	}
}

func (s *set) put(e ipset.Entry) {
	noMatch := e.NoMatch
	e.NoMatch = false
	s.members[e] = noMatch
	if s.header.Timeout > 0 {
		s.expires[e] = time.Now().Add(time.Duration(s.header.Timeout) * time.Second)
	}
}

// expire deletes the members whose time is over.
func (s *set) expire() {
	for e, at := range s.expires {
		if !time.Now().Before(at) {
			delete(s.members, e)
			delete(s.expires, e)
		}
	}
}

// list returns the members in order.
func (s *set) list() []ipset.Entry {
	entries := make([]ipset.Entry, 0, len(s.members))
	for e, noMatch := range s.members {
		e.NoMatch = noMatch
		entries = append(entries, e)
	}
	slices.SortFunc(entries, ipset.Entry.Compare)
	return entries
}
