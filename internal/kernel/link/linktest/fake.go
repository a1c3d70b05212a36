package linktest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

// Fake is a link in memory. All methods may be called by several goroutines.
type Fake struct {
	plan *plan
	name string

	mu     sync.Mutex
	kind   string // kind of the link under our name; empty if there is none
	dummy  bool   // the kernel can make dummy links
	addrs  map[netip.Addr]struct{}
	routes map[netip.Prefix]bool // true: ours
	aside  map[netip.Addr]bool   // detached; true: completely
	// announced are the routes of tables for routing daemons; true: ours.
	announced map[link.Announcement]bool
	rules     map[uint32][]uint32 // priorities of those that lead to a table
	local     map[netip.Addr]string
	hops      []netip.Addr
	watch     *queue // nil without a watcher
	count     link.Counters
	writes    []link.Change
	closed    chan struct{}
}

// New returns a fake kernel without the link and without other addresses.
func New() *Fake {
	return &Fake{
		plan: newPlan(), name: link.DefaultName, dummy: true, closed: make(chan struct{}),
		addrs: map[netip.Addr]struct{}{}, routes: map[netip.Prefix]bool{}, aside: map[netip.Addr]bool{}, local: map[netip.Addr]string{},
		announced: map[link.Announcement]bool{}, rules: map[uint32][]uint32{},
	}
}

// Ensure does what link.Handle.Ensure does.
func (f *Fake) Ensure(ctx context.Context) (created bool, err error) {
	if err := f.enter(ctx, Ensure); err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err = f.ours()
	if !errors.Is(err, link.ErrNotExist) {
		return false, err
	}
	if !f.dummy {
		return false, fmt.Errorf("create dummy link %s: %w", f.name, link.ErrUnsupported)
	}
	f.kind = "dummy"
	return true, nil
}

// List does what link.Handle.List does.
func (f *Fake) List(ctx context.Context) (map[netip.Addr]struct{}, error) {
	if err := f.enter(ctx, List); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.ours(); err != nil {
		return nil, err
	}
	addrs := maps.Clone(f.addrs)
	maps.DeleteFunc(addrs, func(a netip.Addr, _ struct{}) bool { return f.plan.hides(a) })
	return addrs, nil
}

// Local does what link.Handle.Local does.
func (f *Fake) Local(ctx context.Context) (map[netip.Addr]string, error) {
	if err := f.enter(ctx, Local); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.local), nil
}

// Gateways does what link.Handle.Gateways does.
func (f *Fake) Gateways(ctx context.Context) ([]netip.Addr, error) {
	if err := f.enter(ctx, Gateways); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.hops), nil
}

// Write does what link.Handle.Write does.
func (f *Fake) Write(ctx context.Context, changes []link.Change) []error {
	if len(changes) == 0 {
		return nil
	}
	whole := f.enter(ctx, Write)
	f.mu.Lock()
	defer f.mu.Unlock()
	if whole == nil {
		whole = f.ours()
	}
	errs, failed := make([]error, len(changes)), 0
	for i, c := range changes {
		if err := f.apply(c, whole); err != nil {
			errs[i] = fmt.Errorf("%s on link %s: %w", c, f.name, err)
			failed++
		}
	}
	f.count.Rows += uint64(len(changes))
	f.count.Failed += uint64(failed)
	if failed == 0 {
		return nil
	}
	return errs
}

// ListRoutes does what link.Handle.ListRoutes does.
func (f *Fake) ListRoutes(ctx context.Context) (map[netip.Prefix]struct{}, error) {
	if err := f.enter(ctx, ListRoutes); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ourRoutes(), nil
}

// ourRoutes leaves out those of others. The caller holds the lock.
func (f *Fake) ourRoutes() map[netip.Prefix]struct{} {
	routes := map[netip.Prefix]struct{}{}
	for p, ours := range f.routes {
		if ours {
			routes[p] = struct{}{}
		}
	}
	return routes
}

// WriteRoutes does what link.Handle.WriteRoutes does.
func (f *Fake) WriteRoutes(ctx context.Context, changes []link.RouteChange) []error {
	whole := f.enter(ctx, WriteRoutes)
	f.mu.Lock()
	defer f.mu.Unlock()
	errs, failed := make([]error, len(changes)), 0
	for i, c := range changes {
		if err := f.applyRoute(c, whole); err != nil {
			errs[i] = fmt.Errorf("%s: %w", c, err)
			failed++
		}
	}
	f.count.Rows += uint64(len(changes))
	f.count.Failed += uint64(failed)
	if failed == 0 {
		return nil
	}
	return errs
}

// applyRoute does one row. The caller holds the lock.
func (f *Fake) applyRoute(c link.RouteChange, whole error) error {
	if err := c.Check(); err != nil {
		return err
	}
	ours, there := f.routes[c.Prefix]
	switch {
	case whole != nil:
		return whole
	case c.Op == link.Add && there && !ours:
		return fmt.Errorf("by a route of another program it %w", link.ErrExist)
	case c.Op == link.Add:
		f.routes[c.Prefix] = true
	case ours:
		delete(f.routes, c.Prefix)
	}
	return nil
}

// ListDetached does what link.Handle.ListDetached does.
func (f *Fake) ListDetached(ctx context.Context) (map[netip.Addr]bool, error) {
	if err := f.enter(ctx, ListDetached); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.aside), nil
}

// WriteDetached does what link.Handle.WriteDetached does.
func (f *Fake) WriteDetached(ctx context.Context, changes []link.Change) []error {
	whole := f.enter(ctx, WriteDetached)
	f.mu.Lock()
	defer f.mu.Unlock()
	errs, failed := make([]error, len(changes)), 0
	for i, c := range changes {
		if err := f.detach(c, whole); err != nil {
			errs[i] = fmt.Errorf("%s to those detached: %w", c, err)
			failed++
		}
	}
	f.count.Rows += uint64(len(changes))
	f.count.Failed += uint64(failed)
	if failed == 0 {
		return nil
	}
	return errs
}

// detach does one row. The caller holds the lock.
func (f *Fake) detach(c link.Change, whole error) error {
	if err := c.Check(); err != nil {
		return err
	}
	if whole != nil {
		return whole
	}
	if c.Op == link.Delete {
		delete(f.aside, c.Addr)
		return nil
	}
	if err := f.ours(); err != nil {
		return err
	}
	f.aside[c.Addr] = true
	return nil
}

// detached are the addresses that are it completely. The caller holds the lock.
func (f *Fake) detached() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for a, complete := range f.aside {
			if complete && !yield(a) {
				return
			}
		}
	}
}

// bind puts an address on the link: the kernel makes it local for all packets. The caller
// holds the lock.
func (f *Fake) bind(a netip.Addr) {
	if _, bound := f.addrs[a]; !bound && a.Is4() {
		if _, aside := f.aside[a]; aside {
			f.aside[a] = false
		}
	}
	f.addrs[a] = struct{}{}
}

// Remove does what link.Handle.Remove does.
func (f *Fake) Remove(ctx context.Context) error {
	if err := f.enter(ctx, Remove); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.ours()
	if errors.Is(err, link.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.kind = ""
	clear(f.addrs)
	return nil
}

// Counters does what link.Handle.Counters does.
func (f *Fake) Counters() link.Counters {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Close ends a running Watch; later calls fail.
func (f *Fake) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isClosed() {
		close(f.closed)
	}
}

// String prints the addresses as commands of ip-address(8), sorted, and after them our
// routes and which addresses are detached as commands of ip-route(8).
func (f *Fake) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	_ = link.WriteAddrsOf(&b, f.name, maps.Keys(f.addrs))
	_ = link.WriteRoutes(&b, maps.Keys(f.ourRoutes()))
	_ = link.WriteDetached(&b, link.DetachMark(14), f.detached(), func(a netip.Addr) bool { _, bound := f.addrs[a]; return bound })
	_ = link.WriteAnnouncements(&b, maps.Keys(f.ourAnnouncements(0)))
	return b.String()
}

// Applied returns the rows that were applied so far, in order.
func (f *Fake) Applied() []link.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]link.Change(nil), f.writes...)
}

// enter counts a call and returns the fault that is planned for it.
func (f *Fake) enter(ctx context.Context, c Call) error {
	if f.isClosed() {
		return fmt.Errorf("%s: handle is closed", c)
	}
	f.mu.Lock()
	f.count.Calls++
	f.mu.Unlock()
	err := f.plan.enter(ctx, c)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("%s: %w: %w", c, link.ErrBusy, ctx.Err())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil && ctx.Err() != nil:
		f.count.Timeouts++
	case errors.Is(err, link.ErrInterrupted):
		f.count.Interrupted++
	}
	return err
}

func (f *Fake) isClosed() bool {
	select {
	case <-f.closed:
		return true
	default:
		return false
	}
}

// ours refuses a missing link and one of another type. The caller holds the lock.
func (f *Fake) ours() error {
	switch f.kind {
	case "dummy":
		return nil
	case "":
		return fmt.Errorf("find link %s: %w", f.name, link.ErrNotExist)
	}
	return fmt.Errorf("use link %s as dummy link: a link of type %q %w", f.name, f.kind, link.ErrExist)
}

// apply does one row. The caller holds the lock.
func (f *Fake) apply(c link.Change, whole error) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Op == link.Delete && errors.Is(whole, link.ErrNotExist) {
		return nil
	}
	if whole != nil {
		return whole
	}
	if err := f.plan.row(c.Addr); err != nil {
		return err
	}
	if c.Op == link.Add {
		f.bind(c.Addr)
	} else {
		delete(f.addrs, c.Addr)
	}
	f.writes = append(f.writes, c)
	return nil
}
