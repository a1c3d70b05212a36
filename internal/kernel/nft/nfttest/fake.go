package nfttest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
)

// hangTime is how long a call that hangs takes without a deadline of its caller's: the Handle's own
// bound.
const hangTime = 5 * time.Second

// Fake is a kernel's tables with the methods of nft.Handle. It may be used and looked at by several
// goroutines.
type Fake struct {
	mu         sync.Mutex
	kernel     kernel
	generation uint32
	calls      int // begun so far
	nth        map[int]error
	hangs      map[int]bool
	always     error
	refused    map[string]error // by the text of the row
}

// kernel is the state of the tables. A copy shares nothing that changes.
type kernel struct {
	tables map[nft.Family]uint32
	sets   map[nft.Key]set
	chains map[nft.Key]nft.Chain
}

// set is a set with its elements by their keys.
type set struct {
	header   nft.Set
	elements map[nft.Element]member
}

type member struct {
	element nft.Element
	expires time.Time // zero: never
}

// New returns a fake kernel without tables of ours.
func New() *Fake { return &Fake{kernel: newKernel()} }

func newKernel() kernel {
	return kernel{map[nft.Family]uint32{}, map[nft.Key]set{}, map[nft.Key]nft.Chain{}}
}

func (k kernel) clone() kernel {
	out := kernel{maps.Clone(k.tables), maps.Clone(k.sets), maps.Clone(k.chains)}
	for key, s := range out.sets {
		out.sets[key] = set{s.header, maps.Clone(s.elements)}
	}
	return out
}

// Flush removes all tables, as `nft flush ruleset` does.
func (f *Fake) Flush() { f.change(func(k *kernel) { *k = newKernel() }) }

// AddRule appends a rule to a chain of ours, as another program would.
func (f *Fake) AddRule(key nft.Key, r nft.Rule) {
	r.Foreign = true
	f.change(func(k *kernel) {
		c := k.chains[key]
		c.Rules = append(slices.Clip(c.Rules), r)
		k.chains[key] = c
	})
}

// DeleteElement removes an element, as another program would.
func (f *Fake) DeleteElement(key nft.Key, e nft.Element) {
	f.change(func(k *kernel) { delete(k.sets[key].elements, e.Key()) })
}

// SetVersion makes a table one of another version; 0 is a table without a version.
func (f *Fake) SetVersion(family nft.Family, version uint32) {
	f.change(func(k *kernel) { k.tables[family] = version })
}

// change is a transaction of another program.
func (f *Fake) change(do func(*kernel)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(&f.kernel)
	f.generation++
}

// FailCall makes the nth call from now on fail, 1 being the next.
func (f *Fake) FailCall(nth int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	put(&f.nth, f.calls+nth, err)
}

// HangCall makes the nth call from now on hang until the context's deadline, or for 5 s; the call
// has no effect.
func (f *Fake) HangCall(nth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	put(&f.hangs, f.calls+nth, true)
}

// FailAlways makes every call fail.
func (f *Fake) FailAlways(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.always = err
}

// RefuseRow makes every row with that text fail: "add set ip kube-ipvs KUBE-CLUSTER-IP".
func (f *Fake) RefuseRow(text string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	put(&f.refused, text, err)
}

// Heal deletes all faults.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nth, f.hangs, f.always, f.refused = nil, nil, nil, nil
}

// Calls counts the calls that would have asked the kernel.
func (f *Fake) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// String prints our tables as `nft list table` does, with the elements in order.
func (f *Fake) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ruleset().Text(func(k nft.Key) []nft.Element { return f.kernel.sets[k].list() })
}

func (f *Fake) ruleset() nft.Ruleset {
	out := nft.Ruleset{Generation: f.generation, Tables: maps.Clone(f.kernel.tables), Sets: map[nft.Key]nft.Set{}, Chains: map[nft.Key]nft.Chain{}}
	for k, s := range f.kernel.sets {
		out.Sets[k] = s.header
	}
	for k, c := range f.kernel.chains {
		c.Rules = slices.Clone(c.Rules)
		out.Chains[k] = c
	}
	return out
}

// list returns the elements whose time is not over, in order.
func (s set) list() (out []nft.Element) {
	for _, m := range s.elements {
		if m.expires.IsZero() || time.Now().Before(m.expires) {
			out = append(out, m.element)
		}
	}
	slices.SortFunc(out, nft.Element.Compare)
	return out
}

// Close does nothing: a test looks at the tables afterwards.
func (f *Fake) Close() {}

// Wrote is nft.Handle.Wrote: a fake has no sockets.
func (f *Fake) Wrote(uint32) bool { return false }

// Read is nft.Handle.Read.
func (f *Fake) Read(ctx context.Context) (nft.Ruleset, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nft.Ruleset{}, fmt.Errorf("read nftables tables %s: %w", nft.TableName, err)
	}
	return f.ruleset(), nil
}

// Generation is nft.Handle.Generation.
func (f *Fake) Generation(ctx context.Context) (uint32, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("read the generation of nftables: %w", err)
	}
	return f.generation, nil
}

// Elements is nft.Handle.Elements.
func (f *Fake) Elements(ctx context.Context, k nft.Key) (nft.Set, []nft.Element, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	s, exists := f.kernel.sets[k]
	if err == nil && !exists {
		err = nft.ErrNotExist
	}
	if err != nil {
		return nft.Set{}, nil, fmt.Errorf("read set %s: %w", k, err)
	}
	return s.header, s.list(), nil
}

// Apply is nft.Handle.Apply.
func (f *Fake) Apply(ctx context.Context, p nft.Pass) nft.Outcome {
	return f.write(ctx, p, true)
}

// Check is nft.Handle.Check.
func (f *Fake) Check(ctx context.Context, p nft.Pass) nft.Outcome {
	return f.write(ctx, p, false)
}

func (f *Fake) write(ctx context.Context, p nft.Pass, commit bool) nft.Outcome {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nft.Refuse(p, err)
	}
	t := newTransaction(p, f.refused)
	next := t.run(f.kernel)
	if commit && t.sent {
		f.kernel = next
		f.generation++
	}
	return t.outcome()
}

// begin counts a call and returns the error planned for it. It returns with the lock held in any
// case.
func (f *Fake) begin(ctx context.Context) error {
	f.mu.Lock()
	f.calls++
	switch n := f.calls; {
	case f.hangs[n]:
		return f.hang(ctx)
	case ctx.Err() != nil:
		return ctx.Err()
	case f.nth[n] != nil:
		return f.nth[n]
	}
	return f.always
}

// hang waits without the lock, so that a test can look at the tables meanwhile.
func (f *Fake) hang(ctx context.Context) error {
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, hangTime)
	defer cancel()
	<-ctx.Done()
	f.mu.Lock()
	return fmt.Errorf("no answer from the kernel: %w: %w", nft.ErrBusy, ctx.Err())
}

func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}
