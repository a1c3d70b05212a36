package conntrack_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack/conntracktest"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// staleFlows are n flows to a key, each answered by another address.
func staleFlows(k conntrack.Key, n int) []conntracktest.Flow {
	var out []conntracktest.Flow
	for i := range n {
		out = append(out, from(k, fmt.Sprintf("10.200.%d.%d:4001", i/250, i%250), "10.244.99.9:5353"))
	}
	return out
}

// manyOrders are orders for more ports than are asked for one by one, the first of
// which is for dns.
func manyOrders() []conntrack.Order {
	orders := []conntrack.Order{keep(dns)}
	for i := range conntrack.FilteredPorts {
		orders = append(orders, keep(key(fmt.Sprintf("10.96.1.1:%d", 54+i))))
	}
	return orders
}

// never and always are faults, first is one that goes away.
func always(int) bool { return true }
func first(n int) func(int) bool {
	return func(i int) bool { return i <= n }
}

func TestKernelWithoutTheSubsystem(t *testing.T) {
	p := newPeer()
	p.missing = true
	if _, err := conntrack.NewOver(zaptest.NewLogger(t), conntrack.Options{}, p.open); !errors.Is(err, conntrack.ErrUnsupported) {
		t.Errorf("New: %v, want %v", err, conntrack.ErrUnsupported)
	}
}

// TestKernelThatDoesNotFilter: one before 5.8 gives everything, which is looked
// through once for all orders, and not asked so again.
func TestKernelThatDoesNotFilter(t *testing.T) {
	other, third := key("10.96.0.11:53"), key("10.96.0.12:53")
	p := newPeer(slices.Collect(conntracktest.Foreign(4, 100))...)
	p.add(from(dns, "10.244.0.1:4001", "10.244.9.9:53"), from(other, "10.244.0.1:4002", "10.244.9.9:53"), from(third, "10.244.0.1:4003", "10.244.9.9:53"))
	p.ignores = true
	h := p.handle(t, conntrack.Options{})
	w := world{sweeper: h}
	if out := w.sweep(t, 3, keep(dns), keep(other), keep(third)); out.Whole != 1 || out.Seen != 103 {
		t.Errorf("Sweep = %+v, want one dump for all", out)
	}
	w.sweep(t, 0, keep(dns))
	if want := []bool{true, false}; !slices.Equal(p.asked, want) {
		t.Errorf("dumps with a filter: %v, want %v", p.asked, want)
	}
}

// TestFewDumps: keys that share a port share a dump, many ports share one, and one
// of several protocols has no filter.
func TestFewDumps(t *testing.T) {
	ports := func(n int, protocols ...netkey.Protocol) (orders []conntrack.Order) {
		for i := range n {
			for _, p := range protocols {
				k := key(fmt.Sprintf("10.96.0.1:%d", 53+i))
				k.Protocol = p
				orders = append(orders, keep(k))
			}
		}
		return orders
	}
	tests := map[string]struct {
		orders      []conntrack.Order
		dumps, seen int
		filter      bool
	}{
		"keys with one port":       {[]conntrack.Order{keep(dns), keep(key("10.96.0.1:53")), keep(key("10.96.0.2:53"))}, 1, 2, true},
		"one key":                  {[]conntrack.Order{keep(dns)}, 1, 0, true},
		"a few ports":              {ports(conntrack.FilteredPorts, conntrack.ProtocolUDP), conntrack.FilteredPorts, 1, true},
		"many ports":               {ports(conntrack.FilteredPorts+1, conntrack.ProtocolUDP), 1, 103, true},
		"many ports and protocols": {ports(conntrack.FilteredPorts, conntrack.ProtocolUDP, conntrack.ProtocolSCTP), 1, 104, false},
	}
	tcp := key("10.96.0.1:53")
	tcp.Protocol = conntrack.ProtocolTCP
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPeer(slices.Collect(conntracktest.Foreign(4, 100))...)
			who := netip.MustParseAddrPort("10.244.1.1:53")
			p.add(from(key("10.96.0.1:53"), "10.244.0.1:4001", who.String()), from(key("10.96.0.9:53"), "10.244.0.1:4002"),
				from(key("10.96.0.9:54"), "10.244.0.1:4002"), from(tcp, "10.244.0.1:4001"))
			for i := range tt.orders {
				tt.orders[i].Keep = []netip.AddrPort{who}
			}
			out, err := p.handle(t, conntrack.Options{}).Sweep(t.Context(), tt.orders)
			if err != nil || p.dumps != tt.dumps || out.Seen != tt.seen || p.asked[0] != tt.filter {
				t.Errorf("Sweep = %+v, %v with %d dumps, filtered %v", out, err, p.dumps, p.asked)
			}
		})
	}
}

// TestFewFlowsOfAProtocol: where all of its flows were few, they are read at once rather than port by port, until they are many.
func TestFewFlowsOfAProtocol(t *testing.T) {
	p := newPeer(slices.Collect(conntracktest.Foreign(4, 100))...)
	h := p.handle(t, conntrack.Options{Rate: 1 << 30})
	two := []conntrack.Order{keep(dns), keep(key("10.96.0.10:54"))}
	dumps := func(orders []conntrack.Order) (n int) {
		before := p.dumps
		if out, err := h.Sweep(t.Context(), orders); err != nil || out.Whole > 0 && len(orders) == 2 {
			t.Fatalf("Sweep = %+v, %v", out, err)
		}
		return p.dumps - before
	}
	if n := dumps(two); n != 2 {
		t.Errorf("%d dumps for two ports before anything is known", n)
	}
	dumps(manyOrders())
	if n := dumps(two); n != 1 {
		t.Errorf("%d dumps for two ports beside 100 flows", n)
	}
	p.add(slices.Collect(conntracktest.Foreign(4, 30_000))[100:]...)
	if n := dumps(two); n != 1 {
		t.Errorf("%d dumps for two ports before it is known that the table grew", n)
	}
	if n := dumps(two); n != 2 {
		t.Errorf("%d dumps for two ports beside 30,000 flows", n)
	}
}

func TestKernelThatRefusesFilters(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EINVAL, syscall.EOPNOTSUPP} {
		p := newPeer(staleFlows(dns, 3)...)
		p.refuses = errno
		h := p.handle(t, conntrack.Options{})
		if out := (world{sweeper: h}).sweep(t, 3, keep(dns), keep(key("10.96.0.11:53"))); out.Whole != 1 {
			t.Errorf("%v: Sweep = %+v, want one dump", errno, out)
		}
		if want := []bool{true, false}; !slices.Equal(p.asked, want) {
			t.Errorf("%v: dumps with a filter: %v, want %v", errno, p.asked, want)
		}
	}
}

func TestInterruptedDumpIsDoneAgain(t *testing.T) {
	for name, orders := range map[string][]conntrack.Order{"filtered": {keep(dns)}, "whole": manyOrders()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(staleFlows(dns, 2000)...)
				p.interrupt = first(2)
				h := p.handle(t, conntrack.Options{})
				out, err := h.Sweep(t.Context(), orders)
				if err != nil || out.Deleted != 2000 || p.dumps != 3 {
					t.Errorf("Sweep = %+v, %v after %d dumps, want the third to be believed", out, err, p.dumps)
				}
			})
		})
	}
}

// TestTableThatNeverHoldsStill: flows that were found are deleted all the same.
func TestTableThatNeverHoldsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(staleFlows(dns, 2000)...)
		p.interrupt = always
		h := p.handle(t, conntrack.Options{Attempts: 3})
		out, err := h.Sweep(t.Context(), []conntrack.Order{keep(dns)})
		if !errors.Is(err, conntrack.ErrInterrupted) || out.Deleted != 2000 || p.dumps != 3 {
			t.Errorf("Sweep = %+v, %v after %d dumps", out, err, p.dumps)
		}
	})
}

// TestSocketThatFailed is given up, what was found is deleted, and the next sweep
// works.
func TestSocketThatFailed(t *testing.T) {
	faults := map[string]func(*peer, func(int) bool){
		"silence":  func(p *peer, when func(int) bool) { p.mute = when },
		"overrun":  func(p *peer, when func(int) bool) { p.overrun = when },
		"nonsense": func(p *peer, when func(int) bool) { p.garble = when },
		"stuck":    func(p *peer, when func(int) bool) { p.stuck = when },
	}
	for name, fault := range faults {
		for what, send := range map[string]int{"dump": 2, "deletion": 3} { // 1 is the first question
			t.Run(name+" "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPeer(staleFlows(dns, 300)...)
					fault(p, func(i int) bool { return i == send })
					deadlines := map[string]time.Duration{"dump": 3 * time.Second, "deletion": time.Second}
					h := p.handle(t, conntrack.Options{Deadline: deadlines["deletion"], DumpDeadline: deadlines["dump"]})
					start := time.Now()
					if out, err := h.Sweep(t.Context(), []conntrack.Order{keep(dns)}); err == nil {
						t.Errorf("Sweep = %+v, want an error", out)
					} else if name != "nonsense" && !errors.Is(err, conntrack.ErrBusy) {
						t.Errorf("Sweep: %v, want %v", err, conntrack.ErrBusy)
					}
					if took := time.Since(start); took > deadlines[what] {
						t.Errorf("came back after %s, and the deadline is %s", took, deadlines[what])
					}
					if _, err := h.Sweep(t.Context(), []conntrack.Order{keep(dns)}); err != nil {
						t.Errorf("the next one: %v", err)
					}
					if len(p.flows) != 0 || len(p.deleted) != 300 {
						t.Errorf("%d flows are left, %d were deleted", len(p.flows), len(p.deleted))
					}
					close(p.hold)
				})
			})
		}
	}
}

// TestCallsAreToldOf: with how long each was waited for, one that never came back too.
func TestCallsAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(staleFlows(dns, 3)...)
		var good, late int
		h := p.handle(t, conntrack.Options{Called: func(took time.Duration, err error) {
			switch {
			case err == nil && took == 0:
				good++
			case errors.Is(err, context.DeadlineExceeded) && took == 30*time.Second:
				late++
			default:
				t.Errorf("told of %s, %v", took, err)
			}
		}})
		if _, err := h.Sweep(t.Context(), []conntrack.Order{keep(dns)}); err != nil || good == 0 || late != 0 {
			t.Errorf("a sweep: %v, told of %d calls and %d late ones", err, good, late)
		}
		good, p.mute = 0, always
		if _, err := h.Sweep(t.Context(), []conntrack.Order{keep(dns)}); err == nil || good != 1 || late != 1 {
			t.Errorf("no answer: %v, told of %d calls and %d late ones, want a message taken and no answer to it", err, good, late)
		}
	})
}

// TestKernelThatHoldsCalls: few threads wait in the kernel for abandoned calls.
func TestKernelThatHoldsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		h := p.handle(t, conntrack.Options{Deadline: time.Second, DumpDeadline: time.Second})
		p.stuck = always
		for range 10 {
			if _, err := h.Sweep(t.Context(), []conntrack.Order{keep(dns)}); !errors.Is(err, conntrack.ErrBusy) {
				t.Errorf("Sweep: %v, want %v", err, conntrack.ErrBusy)
			}
		}
		p.mu.Lock()
		if p.sends != 1+4 {
			t.Errorf("%d calls are held, want 4", p.sends-1)
		}
		p.stuck = first(0)
		p.mu.Unlock()
		close(p.hold)
		synctest.Wait()
		if _, err := h.Sweep(t.Context(), []conntrack.Order{keep(dns)}); err != nil {
			t.Errorf("the kernel has come back: %v", err)
		}
	})
}

func TestDeletionThatIsRefused(t *testing.T) {
	tests := map[string]struct {
		errno   syscall.Errno
		want    error
		deleted int
	}{
		"gone already": {syscall.ENOENT, nil, 1999},
		"forbidden":    {syscall.EPERM, syscall.EPERM, 1999},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPeer(staleFlows(dns, 2000)...)
			asked := 0
			p.verdict = func(int) int {
				if asked++; asked == 700 {
					return int(tt.errno)
				}
				return 0
			}
			out, err := p.handle(t, conntrack.Options{}).Sweep(t.Context(), manyOrders())
			if !errors.Is(err, tt.want) || out.Stale != 2000 || out.Deleted != tt.deleted {
				t.Errorf("Sweep = %+v, %v, want %d deleted and %v", out, err, tt.deleted, tt.want)
			}
		})
	}
}

// TestTupleThatChangedHands: between dump and deletion the client began a new flow.
func TestTupleThatChangedHands(t *testing.T) {
	flows := staleFlows(dns, 10)
	p := newPeer(flows...)
	p.verdict = func(int) int { p.ids[flows[5]] = 7; return 0 }
	out, err := p.handle(t, conntrack.Options{}).Sweep(t.Context(), []conntrack.Order{keep(dns)})
	if err != nil || out.Deleted != 9 || len(p.flows) != 1 || p.flows[0] != flows[5] {
		t.Errorf("Sweep = %+v, %v; left are %v", out, err, p.flows)
	}
}

// TestBatches: deletions go out many at a time, never too many, each naming one
// flow: a deletion without one would be for the whole table.
func TestBatches(t *testing.T) {
	p := newPeer(staleFlows(dns, 5000)...)
	p.perRead = 200
	p.chatter = true
	if out, err := p.handle(t, conntrack.Options{}).Sweep(t.Context(), manyOrders()); err != nil || out.Deleted != 5000 {
		t.Fatalf("Sweep = %+v, %v", out, err)
	}
	if len(p.batches) > 7 || slices.Max(p.batches) > 1024 || p.bare > 0 {
		t.Errorf("batches %v, %d deletions that name no flow", p.batches, p.bare)
	}
}

// TestPortsDoNotWait: the flows of one port are deleted before the kernel is asked for the next.
func TestPortsDoNotWait(t *testing.T) {
	other := key("10.96.0.10:54")
	p := newPeer(from(dns, "10.244.0.1:4001", "10.244.9.9:53"), from(other, "10.244.0.1:4002", "10.244.9.9:53"))
	if out, err := p.handle(t, conntrack.Options{}).Sweep(t.Context(), []conntrack.Order{keep(dns), keep(other)}); err != nil || out.Deleted != 2 {
		t.Fatalf("Sweep = %+v, %v", out, err)
	}
	if want := []int{1, 1}; !slices.Equal(p.batches, want) {
		t.Errorf("batches %v, want %v", p.batches, want)
	}
}

// TestLongDumpIsPaced: beyond the first 10,000 flows no more than 200,000 a second
// are read, and few are read at once.
func TestLongDumpIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(staleFlows(dns, 5000)...)
		p.add(slices.Collect(conntracktest.Foreign(4, 50_000))...)
		h := p.handle(t, conntrack.Options{})
		start := time.Now()
		if out, err := h.Sweep(t.Context(), manyOrders()); err != nil || out.Seen != 55_000 {
			t.Fatalf("Sweep = %+v, %v", out, err)
		}
		if took := time.Since(start); took < 200*time.Millisecond || took > 240*time.Millisecond {
			t.Errorf("45,000 paced flows took %s of the clock, want 225ms", took)
		}
		start = time.Now()
		p.flows = append(staleFlows(dns, 5000), p.flows...)
		if out, err := h.Sweep(t.Context(), []conntrack.Order{keep(dns)}); err != nil || out.Deleted != 5000 || time.Since(start) > 0 {
			t.Errorf("Sweep = %+v, %v after %s, want no pause", out, err, time.Since(start))
		}
	})
}

// TestSweepEndsWithItsContext: also while it rests.
func TestSweepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(slices.Collect(conntracktest.Foreign(4, 50_000))...)
		h := p.handle(t, conntrack.Options{Rate: 1000})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := h.Sweep(ctx, manyOrders()); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("Sweep: %v after %s", err, time.Since(start))
		}
		if _, err := h.Sweep(t.Context(), []conntrack.Order{keep(dns)}); err != nil {
			t.Errorf("the next one: %v", err)
		}
	})
}
