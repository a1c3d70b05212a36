package conntracktest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Fake is a table in memory. All methods may be called by several goroutines.
type Fake struct {
	mu     sync.Mutex
	flows  map[Flow]struct{}
	ways   map[way]Flow
	swept  [][]conntrack.Order
	calls  int
	nth    map[int]error
	always error
	hang   bool
	closed bool
}

// New returns an empty table.
func New() *Fake {
	return &Fake{flows: map[Flow]struct{}{}, ways: map[way]Flow{}, nth: map[int]error{}}
}

// Add puts flows into the table. As in the kernel, what goes one way between two
// sockets in one zone belongs to one flow.
func (f *Fake) Add(flows ...Flow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, added := range flows {
		for _, way := range added.ways() {
			if owner, taken := f.ways[way]; taken {
				return fmt.Errorf("add %s: its packets belong to %s", added, owner)
			}
		}
		f.flows[added] = struct{}{}
		for _, way := range added.ways() {
			f.ways[way] = added
		}
	}
	return nil
}

// way is one direction of a flow.
type way struct {
	protocol netkey.Protocol
	from, to netip.AddrPort
	zone     uint16
}

func (f Flow) ways() [2]way {
	return [2]way{{f.Protocol, f.Client, f.Dialled, f.Zone}, {f.Protocol, f.Answers, f.Towards, f.Zone}}
}

// remove has the lock.
func (f *Fake) remove(flow Flow) {
	delete(f.flows, flow)
	for _, way := range flow.ways() {
		delete(f.ways, way)
	}
}

// Remove takes flows out of the table.
func (f *Fake) Remove(flows ...Flow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, flow := range flows {
		if _, there := f.flows[flow]; !there {
			return fmt.Errorf("remove %s: not there", flow)
		}
		f.remove(flow)
	}
	return nil
}

// Flows returns the table, sorted.
func (f *Fake) Flows() ([]Flow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Keys(f.flows), Flow.Compare), nil
}

// String prints the table, a flow a line, sorted.
func (f *Fake) String() string {
	flows, _ := f.Flows()
	var b strings.Builder
	for _, one := range flows {
		fmt.Fprintln(&b, one)
	}
	return b.String()
}

// Sweep does what conntrack.Handle.Sweep does.
func (f *Fake) Sweep(ctx context.Context, orders []conntrack.Order) (conntrack.Outcome, error) {
	if err := f.enter(ctx, orders); err != nil {
		return conntrack.Outcome{}, fmt.Errorf("sweep flows to %d keys: %w", len(orders), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out conntrack.Outcome
	for _, v4 := range []bool{true, false} {
		f.sweepFamily(v4, orders, &out)
	}
	return out, nil
}

// sweepFamily has the lock.
func (f *Fake) sweepFamily(v4 bool, orders []conntrack.Order, out *conntrack.Outcome) {
	wanted, fresh := map[conntrack.Key]conntrack.Order{}, map[conntrack.Key]bool{}
	for _, o := range orders {
		if o.Key.Addr.IsValid() && o.Key.Addr.Is4() == v4 {
			wanted[o.Key] = o
			for _, a := range o.Fresh {
				fresh[conntrack.Key{Addr: a.Addr(), Port: a.Port(), Protocol: o.Key.Protocol}] = true
			}
		}
	}
	if len(wanted) == 0 {
		return
	}
	asked := map[port]bool{}
	for k := range wanted {
		asked[port{k.Protocol, k.Port, false}] = true
	}
	for k := range fresh {
		asked[port{k.Protocol, k.Port, true}] = true
	}
	whole := len(asked) > conntrack.FilteredPorts
	if whole {
		out.Whole++
	}
	for flow := range f.flows {
		o, ours := wanted[flow.Key()]
		sent := fresh[flow.sender()]
		if ours || sent || whole && flow.Dialled.Addr().Is4() == v4 {
			out.Seen++
		}
		if ours && o.Stale(flow.Client.Addr(), flow.Answers) && (!o.SparesConnections() || !flow.Replied || flow.Reset) || !ours && sent && flow.alone() {
			out.Stale++
			out.Deleted++
			f.remove(flow)
		}
	}
}

// port is what the kernel is asked for, one by one if there are few.
type port struct {
	protocol netkey.Protocol
	number   uint16
	from     bool // by the sender
}

func (f Flow) sender() conntrack.Key {
	return conntrack.Key{Addr: f.Client.Addr(), Port: f.Client.Port(), Protocol: f.Protocol}
}

// alone reports whether a flow is not rewritten and has no reply.
func (f Flow) alone() bool { return !f.Replied && f.Answers == f.Dialled && f.Towards == f.Client }

// Close makes later sweeps fail.
func (f *Fake) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// enter counts a call and returns the fault that is planned for it.
func (f *Fake) enter(ctx context.Context, orders []conntrack.Order) error {
	f.mu.Lock()
	f.calls++
	f.swept = append(f.swept, slices.Clone(orders))
	err, hang, closed := f.nth[f.calls], f.hang, f.closed
	if err == nil {
		err = f.always
	}
	f.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("handle is closed")
	case hang:
		<-ctx.Done()
		return fmt.Errorf("no answer from the kernel: %w: %w", conntrack.ErrBusy, ctx.Err())
	case err != nil:
		return err
	}
	return ctx.Err()
}

// FailNth makes the n-th sweep from now fail, 1 being the next one. It deletes
// nothing.
func (f *Fake) FailNth(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nth[f.calls+n] = err
}

// FailAlways makes every sweep fail until Heal.
func (f *Fake) FailAlways(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.always = err
}

// Hang makes every sweep wait for the end of its context.
func (f *Fake) Hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hang = true
}

// Heal takes all faults back.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nth, f.always, f.hang = map[int]error{}, nil, false
}

// Sweeps returns the orders of each sweep so far, failed ones included.
func (f *Fake) Sweeps() [][]conntrack.Order {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.swept)
}
