package link_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// These tests are about what only a kernel has: flags, time-outs, lost events.

// kernelHandle keeps a link of a type that every kernel has, if need be.
func kernelHandle(t testing.TB, opts link.Options) (*link.Handle, *neighbour) {
	t.Helper()
	return kernelHandleOf(t, opts, "bridge")
}

func kernelHandleOf(t testing.TB, opts link.Options, kind string) (*link.Handle, *neighbour) {
	t.Helper()
	enterNamespace(t)
	n := newNeighbour(t, kind)
	h, err := link.New(zaptest.NewLogger(t), opts.WithKind(kind))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(h.Close)
	return h, n
}

func TestLinkIsDownAndSilent(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	mustEnsure(t, world{h, n})
	mustWrite(t, world{h, n}, link.Add, "10.96.0.1", "fd00:96::1")
	l := n.link(link.DefaultName)
	if flags := l.Attrs().Flags; flags&net.FlagUp != 0 || l.Attrs().RawFlags&unix.IFF_NOARP == 0 {
		t.Errorf("flags %s (raw %#x), want down and no ARP", flags, l.Attrs().RawFlags)
	}
	addrs, err := n.nl.AddrList(l, netlink.FAMILY_ALL)
	if err != nil || len(addrs) != 2 {
		t.Fatalf("addresses %v, %v, want two", addrs, err)
	}
	for _, a := range addrs {
		if a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
			t.Errorf("%s is tentative (flags %#x)", a.IPNet, a.Flags)
		}
		// An adopted link may lack NOARP, which alone would do here.
		if a.IP.To4() == nil && a.Flags&unix.IFA_F_NODAD == 0 {
			t.Errorf("%s asks for duplicate detection (flags %#x)", a.IPNet, a.Flags)
		}
	}
	// If another program sets it up, it still gets no link-local address.
	n.must("set the link up", n.nl.LinkSetUp(l))
	if addrs, err = n.nl.AddrList(l, netlink.FAMILY_V6); err != nil || len(addrs) != 1 {
		t.Errorf("IPv6 addresses after up: %v, %v, want only ours", addrs, err)
	}
}

func TestAdoptedLinkIsLeftAsItIs(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	made := &netlink.GenericLink{LinkAttrs: attrs(link.DefaultName), LinkType: "bridge"}
	made.MTU = 1400
	n.must("make the link", n.nl.LinkAdd(made))
	n.must("set it up", n.nl.LinkSetUp(n.link(link.DefaultName)))
	if created, err := h.Ensure(t.Context()); err != nil || created {
		t.Fatalf("Ensure = %v, %v, want adopted", created, err)
	}
	if got := n.link(link.DefaultName).Attrs(); got.MTU != 1400 || got.Flags&net.FlagUp == 0 {
		t.Errorf("MTU %d, flags %s: the link was changed", got.MTU, got.Flags)
	}
}

func TestForeignPrefixIsNotOurs(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	w := world{h, n}
	mustEnsure(t, w)
	mustWrite(t, w, link.Add, "10.96.0.1")
	subnet := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1).To4(), Mask: net.CIDRMask(24, 32)}}
	events := watchEvents(t, w)
	n.must("add a subnet", n.nl.AddrAdd(n.link(link.DefaultName), subnet))
	wantAddrs(t, w, "10.96.0.1")
	n.must("delete the subnet", n.nl.AddrDel(n.link(link.DefaultName), subnet))
	n.LoseAddress(netip.MustParseAddr("10.96.0.1"))
	events.want(t, link.Event{Kind: link.OurAddressLost, Addr: netip.MustParseAddr("10.96.0.1")})
}

// Only default routes of the main table count.
func TestOtherRoutesAreNoGateways(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	n.SetGateways(netip.MustParseAddr("192.0.2.1"))
	uplink := n.link("uplink0").Attrs().Index
	for _, r := range []netlink.Route{
		{Dst: ipNet(netip.MustParsePrefix("198.51.100.0/24")), Gw: net.IPv4(192, 0, 2, 9)},
		{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Gw: net.IPv4(192, 0, 2, 8), Table: 100},
		{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Gw: net.IPv4(192, 0, 2, 7), Table: 1000},
		{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Gw: net.IPv4(192, 0, 2, 2), Priority: 500},
		{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Type: unix.RTN_BLACKHOLE, Priority: 600},
		{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Scope: netlink.SCOPE_LINK, Priority: 700},
		{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: net.ParseIP("2001:db8::6")}, Priority: 800},
	} {
		if r.Type == 0 {
			r.LinkIndex = uplink
		}
		if r.Gw != nil || r.Via != nil {
			r.SetFlag(netlink.FLAG_ONLINK)
		}
		n.must("add a route", n.nl.RouteAdd(&r))
	}
	got, err := h.Gateways(t.Context())
	if want := parse("192.0.2.1", "192.0.2.2", "2001:db8::6"); err != nil || !slices.Equal(got, want) {
		t.Errorf("Gateways = %v, %v, want %v", got, err, want)
	}
}

// TestRoutesOfBGPAreNotRead: a node that speaks BGP has many routes, which come and go. None of them
// wakes the watch, and neither they nor addresses that come and go have the routes dumped.
func TestRoutesOfBGPAreNotRead(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	w := world{h, n}
	mustEnsure(t, w)
	n.SetGateways(netip.MustParseAddr("192.0.2.1"))
	uplink := n.link("uplink0").Attrs().Index
	events := watchEvents(t, w)
	wantGateways := func(when string) {
		t.Helper()
		if got, err := h.Gateways(t.Context()); err != nil || !slices.Equal(got, parse("192.0.2.1")) {
			t.Fatalf("%s: Gateways = %v, %v", when, got, err)
		}
	}
	wantGateways("at first")
	before := h.Counters()
	const many = 1000
	for i := range many {
		r := &netlink.Route{Dst: ipNet(netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i >> 8), byte(i), 0}), 24)), LinkIndex: uplink, Scope: netlink.SCOPE_LINK}
		n.must("add a route", n.nl.RouteAdd(r))
		if i%2 == 0 {
			n.must("delete it", n.nl.RouteDel(r))
		}
	}
	wantGateways("with many routes")
	a := netip.MustParseAddr("192.0.2.7")
	for range 10 {
		n.AddElsewhere(a, "uplink0")
		events.want(t, link.Event{Kind: link.NodeAddressesChanged, Addr: a})
		wantGateways("with an address that came")
		n.RemoveElsewhere(a)
		events.want(t, link.Event{Kind: link.NodeAddressesChanged, Addr: a})
	}
	after := h.Counters()
	if calls, woken := after.Calls-before.Calls, after.Events-before.Events; calls != 0 || woken > 100 {
		t.Errorf("%d calls of the kernel, and woken by %d messages, for %d routes and 20 changes of addresses", calls, woken, many)
	}
}

func TestRenamedLinkIsLost(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	mustEnsure(t, world{h, n})
	events := watchEvents(t, world{h, n})
	n.must("rename the link", n.nl.LinkSetName(n.link(link.DefaultName), "other0"))
	events.want(t, link.Event{Kind: link.OurLinkLost})
}

// A port that leaves a bridge is announced as a deleted link, of another family.
func TestLeavingABridgeIsNoLoss(t *testing.T) {
	h, n := kernelHandleOf(t, link.Options{}, "veth") // a bridge cannot be a port
	mustEnsure(t, world{h, n})
	mustWrite(t, world{h, n}, link.Add, "10.96.0.1")
	events := watchEvents(t, world{h, n})
	n.must("make a bridge", n.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs("bridge0")}))
	n.must("join", n.nl.LinkSetMaster(n.link(link.DefaultName), n.link("bridge0")))
	n.must("leave", n.nl.LinkSetNoMaster(n.link(link.DefaultName)))
	n.LoseAddress(netip.MustParseAddr("10.96.0.1"))
	events.want(t, link.Event{Kind: link.OurAddressLost, Addr: netip.MustParseAddr("10.96.0.1")})
}

func TestDisabledIPv6IsNamed(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	mustEnsure(t, world{h, n})
	n.disableIPv6()
	errs := h.Write(t.Context(), changes(link.Add, "10.96.0.1", "fd00:96::1"))
	if len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], link.ErrUnsupported) {
		t.Errorf("Write = %v, want only IPv6 not supported", errs)
	}
	wantAddrs(t, world{h, n}, "10.96.0.1")
}

func TestDisabledIPv6IsNamedForRoutes(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	n.disableIPv6On("lo")
	errs := h.WriteRoutes(t.Context(), []link.RouteChange{
		{Op: link.Add, Prefix: netip.MustParsePrefix("10.96.0.0/16")}, {Op: link.Add, Prefix: netip.MustParsePrefix("fd00:96::/112")},
	})
	if len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], link.ErrUnsupported) {
		t.Errorf("WriteRoutes = %v, want only IPv6 not supported", errs)
	}
	wantRoutes(t, world{h, n}, "10.96.0.0/16")
}

// Why our routes lead to lo: our link would lose them, or not get them.
func TestRoutesToOurLinkDoNotLast(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	w := world{h, n}
	mustEnsure(t, w)
	to := func(text string) *netlink.Route {
		r := n.localRoute(netip.MustParsePrefix(text), unix.RTPROT_STATIC)
		r.LinkIndex = n.link(link.DefaultName).Attrs().Index
		return r
	}
	if err := n.nl.RouteAdd(to("fd00:96::/112")); !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("an IPv6 route to a link that is down: %v, want %v", err, unix.ENETDOWN)
	}
	v4 := to("10.96.0.0/16")
	n.must("add a route", n.nl.RouteAdd(v4))
	mustWrite(t, w, link.Add, "192.0.2.1")
	mustWrite(t, w, link.Delete, "192.0.2.1")
	if err := n.nl.RouteDel(v4); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the route after the last address: deleted with %v, want %v", err, unix.ESRCH)
	}
}

// Addresses that we bind do not wake the watcher. A loss does, and so does a new address on another
// link, even if that link was created again after the watch began.
func TestOwnAddressesWakeNobody(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	w := world{h, n}
	mustEnsure(t, w)
	l := watchEvents(t, w)
	elsewhere := block("192.0.2.0", 4)
	for i, step := range []string{"at first", "again"} {
		n.AddElsewhere(elsewhere[2*i], "uplink0")
		l.until(t, link.NodeAddressesChanged) // the watch knows our link by now
		before := h.Counters().Events
		for _, a := range block("10.96.0.0", 100) {
			mustWrite(t, w, link.Add, a.String())
		}
		n.AddElsewhere(elsewhere[2*i+1], "uplink0")
		l.until(t, link.NodeAddressesChanged)
		if woken := h.Counters().Events - before; woken > 4 {
			t.Errorf("%s: woken %d times", step, woken)
		}
		n.LoseAddress(netip.MustParseAddr("10.96.0.1"))
		l.until(t, link.OurAddressLost)
		n.LoseLink()
		l.until(t, link.OurLinkLost)
		mustEnsure(t, w)
	}
	l.stop(t)
}

func TestLostEventsAreTold(t *testing.T) {
	h, n := kernelHandle(t, link.Options{}.WithWatchBuffer(1))
	w := world{h, n}
	mustEnsure(t, w)
	mustWrite(t, w, link.Add, "10.96.0.1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, resume := make(chan struct{}), make(chan struct{})
	events, done := make(chan link.Event, 1024), make(chan error, 1)
	go func() {
		done <- h.Watch(ctx, func(e link.Event) {
			if e.Kind == link.Ready {
				close(ready)
				<-resume
			}
			events <- e
		})
	}()
	<-ready
	for i, a := range block("192.0.2.0", 50) {
		n.AddElsewhere(a, "uplink0")
		if i == 49 {
			close(resume)
		}
	}
	l := &eventLog{cancel: cancel, end: done, ch: events}
	l.until(t, link.Overrun)
	if got := h.Counters().Overruns; got == 0 {
		t.Error("no overrun was counted")
	}
	// The subscription that followed works.
	n.LoseAddress(netip.MustParseAddr("10.96.0.1"))
	l.until(t, link.OurAddressLost)
	l.stop(t)
}

func TestStuckCallIsAbandoned(t *testing.T) {
	h, n := kernelHandle(t, link.Options{Timeout: 10 * time.Millisecond})
	release := make(chan struct{})
	for range 4 {
		if err := h.Stall(t.Context(), release); !errors.Is(err, link.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("stuck call: %v, want busy at the deadline", err)
		}
	}
	// More than a few threads are not left behind in the kernel.
	if _, err := h.List(t.Context()); !errors.Is(err, link.ErrBusy) || errors.Is(err, link.ErrNotExist) {
		t.Fatalf("List while the kernel is stuck: %v, want busy", err)
	}
	close(release)
	poll.Until(t, "an answer of the kernel that is no longer stuck", func() bool {
		_, err := h.Local(t.Context())
		return err == nil
	})
	mustWriteEventually(t, world{h, n})
	if got := h.Counters(); got.Timeouts < 4 || got.Reopened < 4 {
		t.Errorf("Counters = %+v, want at least four time-outs and new sockets", got)
	}
}

// mustWriteEventually makes the link and writes, on a handle with so short a
// deadline that a busy machine may need a second try.
func mustWriteEventually(t *testing.T, w world) {
	t.Helper()
	poll.Until(t, "a write within the deadline", func() bool {
		_, err := w.Ensure(t.Context())
		return err == nil && w.Write(t.Context(), changes(link.Add, "10.96.0.1")) == nil
	})
}

func TestCancelledCallReturnsAtOnce(t *testing.T) {
	h, _ := kernelHandle(t, link.Options{})
	release := make(chan struct{})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Stall(ctx, release) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: %v", err)
	}
	if _, err := h.Local(t.Context()); err != nil {
		t.Errorf("the call after it: %v", err)
	}
}

func TestDeadSocketIsReplaced(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	mustEnsure(t, world{h, n})
	h.BreakSocket()
	if _, err := h.List(t.Context()); !errors.Is(err, link.ErrBusy) || errors.Is(err, link.ErrNotExist) {
		t.Fatalf("List on a dead socket: %v, want busy", err)
	}
	wantAddrs(t, world{h, n})
	if got := h.Counters().Reopened; got != 1 {
		t.Errorf("%d sockets were opened again, want 1", got)
	}
}

func TestSocketsStayInTheirNamespace(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	mustEnsure(t, world{h, n})
	h.BreakSocket()
	elsewhere := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // this thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			elsewhere <- err
			return
		}
		_, _ = h.List(t.Context()) // finds the dead socket
		_, err := h.List(t.Context())
		elsewhere <- err
	}()
	if err := <-elsewhere; err != nil {
		t.Errorf("List from a thread in another namespace: %v", err)
	}
}

// A list is whole or there is none, whatever others do to the link meanwhile.
// With a dump that the kernel filters by link this fails: rows are lost silently.
func TestListIsWholeOrNone(t *testing.T) {
	size, lists := 2500, 30
	if os.Getenv("KUBE_IPVS_WHERE") == "vm" {
		size, lists = 1000, 10 // an emulated machine is slow, and a few datagrams will do
	}
	t.Logf("%d addresses, listed %d times", size, lists)
	for _, start := range []string{"10.96.0.0", "fd00:96::"} {
		t.Run(start, func(t *testing.T) {
			h, n := kernelHandle(t, link.Options{})
			mustEnsure(t, world{h, n})
			all := block(start, size)
			rows := make([]link.Change, len(all))
			for i, a := range all {
				rows[i] = link.Change{Op: link.Add, Addr: a}
			}
			if errs := h.Write(t.Context(), rows); errs != nil {
				t.Fatalf("Write: %v", errors.Join(errs...))
			}
			restless, stable := all[:100], all[100:]
			defer n.churn(restless)()
			for range lists {
				got, err := h.List(t.Context())
				if err != nil && (got != nil || !errors.Is(err, link.ErrInterrupted)) {
					t.Fatalf("List = %d addresses, %v, want none and interrupted", len(got), err)
				}
				for _, a := range stable {
					if _, there := got[a]; err == nil && !there {
						t.Fatalf("List lacks %s, which no program touched", a)
					}
				}
			}
			t.Logf("%d dumps were interrupted", h.Counters().Interrupted)
		})
	}
}

// BenchmarkAdd compares one send for many addresses with one for each.
func BenchmarkAdd(b *testing.B) {
	for _, slice := range []struct {
		name string
		size int
	}{{"one by one", 1}, {"in slices of 200", 200}} {
		b.Run(slice.name, func(b *testing.B) {
			h, _ := kernelHandle(b, link.Options{Slice: slice.size})
			if _, err := h.Ensure(b.Context()); err != nil {
				b.Fatalf("Ensure: %v", err)
			}
			rows := make([]link.Change, 1000)
			for b.Loop() {
				for _, op := range []link.Op{link.Add, link.Delete} {
					for i, a := range block("10.96.0.0", len(rows)) {
						rows[i] = link.Change{Op: op, Addr: a}
					}
					if errs := h.Write(b.Context(), rows); errs != nil {
						b.Fatalf("Write: %v", errors.Join(errs...))
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*2*len(rows)), "µs/address")
		})
	}
}

// BenchmarkMakeLocal makes 10,000 addresses local one by one and by one route, and takes
// them back.
func BenchmarkMakeLocal(b *testing.B) {
	const size = 10_000
	handle := func(b *testing.B) *link.Handle {
		h, _ := kernelHandle(b, link.Options{Timeout: time.Minute})
		if _, err := h.Ensure(b.Context()); err != nil {
			b.Fatalf("Ensure: %v", err)
		}
		return h
	}
	for _, family := range []struct{ name, first, all string }{
		{"IPv4", "10.96.0.0", "10.96.0.0/16"}, {"IPv6", "fd00:96::", "fd00:96::/112"},
	} {
		b.Run(family.name+" addresses", func(b *testing.B) {
			h, rows := handle(b), make([]link.Change, size)
			for b.Loop() {
				for _, op := range []link.Op{link.Add, link.Delete} {
					for i, a := range block(family.first, size) {
						rows[i] = link.Change{Op: op, Addr: a}
					}
					if errs := h.Write(b.Context(), rows); errs != nil {
						b.Fatalf("Write: %v", errors.Join(errs...))
					}
				}
			}
		})
		b.Run(family.name+" route", func(b *testing.B) {
			h := handle(b)
			for b.Loop() {
				for _, op := range []link.Op{link.Add, link.Delete} {
					if errs := h.WriteRoutes(b.Context(), []link.RouteChange{{Op: op, Prefix: netip.MustParsePrefix(family.all)}}); errs != nil {
						b.Fatalf("WriteRoutes: %v", errors.Join(errs...))
					}
				}
			}
		})
	}
}

// A detached address is local by our table alone, and what is attached again is local as if
// nothing had been.
func TestDetachedIsLocalToMarkedPackets(t *testing.T) {
	h, n := kernelHandle(t, link.Options{})
	a := netip.MustParseAddr("203.0.113.1")
	if _, err := h.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	tables := func() (found []int) {
		t.Helper()
		routes, err := n.nl.RouteListFiltered(unix.AF_INET, &netlink.Route{Dst: ipNet(netip.PrefixFrom(a, 32)), Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
		n.must("list routes", err)
		for _, r := range routes {
			found = append(found, r.Table)
		}
		return found
	}
	rules := func() (found []int) {
		t.Helper()
		list, err := n.nl.RuleList(unix.AF_INET)
		n.must("list rules", err)
		for _, r := range list {
			if r.Table == link.DetachedTable {
				found = append(found, int(r.Mark))
			}
		}
		return found
	}
	step := func(what string, errs []error, wantTables, wantRules []int) {
		t.Helper()
		if errs != nil {
			t.Fatalf("%s: %v", what, errors.Join(errs...))
		}
		if got := tables(); !slices.Equal(got, wantTables) {
			t.Errorf("%s: local by tables %v, want %v", what, got, wantTables)
		}
		if got := rules(); !slices.Equal(got, wantRules) {
			t.Errorf("%s: rules by mark %v, want %v", what, got, wantRules)
		}
	}
	mark := int(link.DetachMark(14))
	add, del := []link.Change{{Op: link.Add, Addr: a}}, []link.Change{{Op: link.Delete, Addr: a}}
	step("bound", h.Write(t.Context(), add), []int{unix.RT_TABLE_LOCAL}, nil)
	step("detached", h.WriteDetached(t.Context(), add), []int{link.DetachedTable}, []int{mark})
	step("attached", h.WriteDetached(t.Context(), del), []int{unix.RT_TABLE_LOCAL}, nil)
	step("detached again", h.WriteDetached(t.Context(), add), []int{link.DetachedTable}, []int{mark})
	step("unbound", h.Write(t.Context(), del), []int{link.DetachedTable}, []int{mark})
	step("attached where it is not bound", h.WriteDetached(t.Context(), del), nil, nil)
}
