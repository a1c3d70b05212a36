package nftablestest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

// hangTime is what a hanging call takes without a deadline of its caller's, the
// Handle's own bound.
const hangTime = 5 * time.Second

// Fake is a set of tables with the methods of nftables.Handle. It may be used and
// looked at by several goroutines.
type Fake struct {
	mu     sync.Mutex
	tables map[nftables.Key]struct{}
	kept   map[nftables.Key]error // tables that cannot be deleted, and why
	gen    uint32                 // transactions so far
	ears   map[*ear]struct{}
	calls  int // begun so far
	nth    map[int]error
	hangs  map[int]bool
	always error
}

// New returns a fake kernel with these tables.
func New(tables ...nftables.Key) *Fake {
	f := &Fake{tables: map[nftables.Key]struct{}{}}
	f.Add(tables...)
	return f
}

// Add makes tables, as another program would.
func (f *Fake) Add(tables ...nftables.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commit(Other)
	for _, k := range tables {
		f.tables[k] = struct{}{}
	}
}

// Change is a transaction that touches no table's name, as that of a program that
// adds a rule.
func (f *Fake) Change() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commit(Other)
}

// Ports of the sockets by which the Fake, and Add and Change, write.
const (
	Own   = 1
	Other = 2
)

// commit ends a transaction of a socket.
func (f *Fake) commit(port uint32) {
	f.gen++
	f.notify(nftables.Writer{Generation: f.gen, Port: port, PID: port, Program: "fake"})
}

func (f *Fake) notify(w nftables.Writer) {
	for e := range f.ears {
		e.by = append(e.by, w)
		select {
		case e.news <- struct{}{}:
		default: // a notification waits already
		}
	}
}

// Overrun tells all watches that they may have missed something.
func (f *Fake) Overrun() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notify(nftables.Writer{})
}

// BreakWatches ends all watches with an error.
func (f *Fake) BreakWatches(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for e := range f.ears {
		delete(f.ears, e)
		e.broken <- err
	}
}

// Keep makes every deletion of a table fail, fs.ErrPermission as if a program
// owned it, nftables.ErrBusy as if something referred to it.
func (f *Fake) Keep(k nftables.Key, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.kept, k, err)
}

// FailCall makes the nth call from now on fail, 1 being the next.
func (f *Fake) FailCall(nth int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.nth, f.calls+nth, err)
}

// HangCall makes the nth call from now on hang until the context's deadline, or
// for 5 s; the call has no effect.
func (f *Fake) HangCall(nth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.hangs, f.calls+nth, true)
}

// FailAlways makes every call fail.
func (f *Fake) FailAlways(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.always = err
}

// Heal deletes all faults and releases all tables that were held.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept, f.nth, f.hangs, f.always = nil, nil, nil, nil
}

// Calls counts the calls that would have asked the kernel.
func (f *Fake) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// String prints the tables as `nft list tables` does, sorted.
func (f *Fake) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(f.tables), nftables.Key.Compare) {
		fmt.Fprintf(&b, "table %s\n", k)
	}
	return b.String()
}

// Close does nothing: a test looks at the tables afterwards.
func (f *Fake) Close() {}

// List is nftables.Handle.List.
func (f *Fake) List(ctx context.Context) (map[nftables.Key]struct{}, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	return maps.Clone(f.tables), nil
}

// Generation is nftables.Handle.Generation.
func (f *Fake) Generation(ctx context.Context) (uint32, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("read generation of nftables: %w", err)
	}
	return f.gen, nil
}

// ear is one watch.
type ear struct {
	by     []nftables.Writer // since the last call
	news   chan struct{}
	broken chan error
}

// Watch is nftables.Handle.Watch. To begin is a call, to wait is none.
func (f *Fake) Watch(ctx context.Context, changed func(by []nftables.Writer)) error {
	if ctx.Err() != nil {
		return nil
	}
	e, err := f.listen(ctx)
	if err != nil {
		return fmt.Errorf("watch nftables: %w", err)
	}
	defer f.leave(e)
	for {
		changed(f.writers(e))
		select {
		case <-ctx.Done():
			return nil
		case err := <-e.broken:
			return fmt.Errorf("watch nftables: %w", err)
		case <-e.news:
		}
	}
}

func (f *Fake) listen(ctx context.Context) (*ear, error) {
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	e := &ear{news: make(chan struct{}, 1), broken: make(chan error, 1)}
	set(&f.ears, e, struct{}{})
	return e, nil
}

// writers takes what a watch was not called for yet.
func (f *Fake) writers(e *ear) []nftables.Writer {
	f.mu.Lock()
	defer f.mu.Unlock()
	by := e.by
	e.by = nil
	return by
}

func (f *Fake) leave(e *ear) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.ears, e)
}

// Delete is nftables.Handle.Delete.
func (f *Fake) Delete(ctx context.Context, keys []nftables.Key) []error {
	if len(keys) == 0 {
		return nil
	}
	if errs := nftables.CheckAll(keys); errs != nil {
		return errs
	}
	err := f.begin(ctx)
	defer f.mu.Unlock()
	if err != nil {
		return nftables.Together(keys, nil, err)
	}
	faults := map[nftables.Key]error{}
	for _, k := range keys {
		if _, there := f.tables[k]; there && f.kept[k] != nil {
			faults[k] = f.kept[k]
		}
	}
	if len(faults) > 0 {
		return nftables.Together(keys, faults, nil)
	}
	before := len(f.tables)
	for _, k := range keys {
		delete(f.tables, k)
	}
	if len(f.tables) < before { // nothing is sent for what is missing
		f.commit(Own)
	}
	return nil
}

// begin counts a call and gives the error planned for it. It returns with the
// lock held in any case.
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
	return fmt.Errorf("no answer from the kernel: %w: %w", nftables.ErrBusy, ctx.Err())
}

func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}
