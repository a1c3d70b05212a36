package link_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// handle is what both the kernel's handle and the fake are.
type handle interface {
	Ensure(context.Context) (bool, error)
	List(context.Context) (map[netip.Addr]struct{}, error)
	Write(context.Context, []link.Change) []error
	Local(context.Context) (map[netip.Addr]string, error)
	Gateways(context.Context) ([]netip.Addr, error)
	ListRoutes(context.Context) (map[netip.Prefix]struct{}, error)
	WriteRoutes(context.Context, []link.RouteChange) []error
	ListDetached(context.Context) (map[netip.Addr]bool, error)
	WriteDetached(context.Context, []link.Change) []error
	ListAnnounced(context.Context, uint32) (map[link.Announcement]struct{}, error)
	WriteAnnounced(context.Context, []link.AnnounceChange) []error
	RulesTo(context.Context, uint32) ([]uint32, error)
	Watch(context.Context, func(link.Event)) error
	Remove(context.Context) error
	Counters() link.Counters
	Close()
}

// otherProcess is a second process on the node.
type otherProcess interface {
	LoseAddress(netip.Addr)
	LoseLink()
	Occupy(kind string)
	AddElsewhere(a netip.Addr, name string)
	RemoveElsewhere(netip.Addr)
	SetGateways(...netip.Addr)
	AddByHand(netip.Addr)
	LoseRoute(netip.Prefix)
	AddRouteByHand(netip.Prefix)
	RemoveRouteByHand(netip.Prefix)
	LoseAnnouncement(link.Announcement)
	AnnounceByHand(link.Announcement)
	RemoveAnnouncedByHand(link.Announcement)
	LeadTo(table uint32, priorities ...uint32)
}

// world is one kernel with one handle and another process.
type world struct {
	handle
	other otherProcess
}

// contract is what every world has to keep.
var contract = map[string]func(*testing.T, world){
	"create, then adopt":           testEnsure,
	"another link type is refused": testForeignType,
	"a missing link":               testMissingLink,
	"many addresses at once":       testManyAddresses,
	"one bad row among many":       testBadRow,
	"writing twice":                testIdempotent,
	"local excludes our link":      testLocal,
	"gateways":                     testGateways,
	"gateways are told":            testGatewaysTold,
	"what does not count":          testNotListed,
	"an address is lost":           testAddressLost,
	"the link is lost and mended":  testLinkLost,
	"own writes are not told":      testOwnWrites,
	"own removal is not told":      testOwnRemoval,
	"node addresses change":        testNodeAddresses,
	"one watch at a time":          testSecondWatch,
	"routes without the link":      testRoutes,
	"one bad route among many":     testBadRoute,
	"routes of others":             testForeignRoute,
	"a route outlives addresses":   testRouteOutlivesAddresses,
	"a route is lost":              testRouteLost,
	"detached addresses":           testDetached,
	"detached, and bound again":    testDetachedLost,
	"detached and not bound":       testCaptured,
	"what cannot be detached":      testNotDetached,
	"announced addresses":          testAnnounced,
	"one bad announcement of many": testBadAnnouncement,
	"announcements of others":      testForeignAnnouncement,
	"an announcement is lost":      testAnnouncementLost,
	"rules that lead to a table":   testRulesTo,
	"closed":                       testClosed,
	"a context that is over":       testContextOver,
}

func TestFakeKeepsContract(t *testing.T) {
	for name, test := range contract {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := linktest.New()
				t.Cleanup(f.Close)
				test(t, world{f, f})
			})
		})
	}
}

func testEnsure(t *testing.T, w world) {
	for _, want := range []bool{true, false} {
		created, err := w.Ensure(t.Context())
		if err != nil || created != want {
			t.Fatalf("Ensure = %v, %v, want %v", created, err, want)
		}
	}
	mustWrite(t, w, link.Add, "10.96.0.1")
	if created, err := w.Ensure(t.Context()); err != nil || created {
		t.Fatalf("Ensure over a used link = %v, %v, want adopted", created, err)
	}
	wantAddrs(t, w, "10.96.0.1")
	for range 2 {
		if err := w.Remove(t.Context()); err != nil {
			t.Fatalf("Remove: %v", err)
		}
	}
	wantNoLink(t, w)
}

func testForeignType(t *testing.T, w world) {
	w.other.Occupy("vxlan")
	_, ensureErr := w.Ensure(t.Context())
	_, listErr := w.List(t.Context())
	writeErr := errors.Join(w.Write(t.Context(), changes(link.Add, "10.96.0.1"))...)
	for call, err := range map[string]error{
		"Ensure": ensureErr, "List": listErr, "Write": writeErr, "Remove": w.Remove(t.Context()),
	} {
		if !errors.Is(err, link.ErrExist) {
			t.Errorf("%s on a link of another type: %v, want %v", call, err, link.ErrExist)
		}
	}
}

func testMissingLink(t *testing.T, w world) {
	wantNoLink(t, w)
	errs := w.Write(t.Context(), []link.Change{
		{Op: link.Add, Addr: netip.MustParseAddr("10.96.0.1")},
		{Op: link.Delete, Addr: netip.MustParseAddr("10.96.0.2")},
	})
	if len(errs) != 2 || !errors.Is(errs[0], link.ErrNotExist) || errs[1] != nil {
		t.Fatalf("Write = %v, want the addition refused and the deletion done", errs)
	}
}

func testManyAddresses(t *testing.T, w world) {
	mustEnsure(t, w)
	all := slices.Concat(block("10.96.0.0", 1500), block("fd00:96::", 300))
	rows := make([]link.Change, len(all))
	for i, a := range all {
		rows[i] = link.Change{Op: link.Add, Addr: a}
	}
	if errs := w.Write(t.Context(), rows); errs != nil {
		t.Fatalf("Write: %v", errors.Join(errs...))
	}
	wantAddrsExactly(t, w, all)
	for i := range rows {
		rows[i].Op = link.Delete
	}
	if errs := w.Write(t.Context(), rows[:1700]); errs != nil {
		t.Fatalf("Write: %v", errors.Join(errs...))
	}
	wantAddrsExactly(t, w, all[1700:])
	if got := w.Counters(); got.Rows != 3500 || got.Failed != 0 {
		t.Errorf("Counters = %+v, want 3500 rows, none failed", got)
	}
}

func testBadRow(t *testing.T, w world) {
	mustEnsure(t, w)
	bad := map[int]netip.Addr{
		3: {}, 40: netip.MustParseAddr("127.0.0.1"), 210: netip.MustParseAddr("fe80::1"),
		211: netip.MustParseAddr("0.0.0.0"), 298: netip.MustParseAddr("224.0.0.1"),
		299: netip.MustParseAddr("::ffff:10.0.0.1"),
	}
	rows := make([]link.Change, 0, 300)
	var good []netip.Addr
	for i, a := range block("10.97.0.0", 300) {
		if b, isBad := bad[i]; isBad {
			a = b
		} else {
			good = append(good, a)
		}
		rows = append(rows, link.Change{Op: link.Add, Addr: a})
	}
	errs := w.Write(t.Context(), rows)
	if len(errs) != len(rows) {
		t.Fatalf("Write returned %d errors for %d rows", len(errs), len(rows))
	}
	for i, err := range errs {
		if _, isBad := bad[i]; isBad != (err != nil) {
			t.Errorf("row %d (%s): error %v", i, rows[i], err)
		}
	}
	wantAddrsExactly(t, w, good)
	if got := w.Counters(); got.Failed != uint64(len(bad)) {
		t.Errorf("Counters = %+v, want %d failed", got, len(bad))
	}
}

func testIdempotent(t *testing.T, w world) {
	mustEnsure(t, w)
	for range 2 {
		mustWrite(t, w, link.Add, "10.96.0.1", "fd00:96::1")
	}
	wantAddrs(t, w, "10.96.0.1", "fd00:96::1")
	for range 2 {
		mustWrite(t, w, link.Delete, "10.96.0.1", "fd00:96::1")
	}
	wantAddrs(t, w)
	if errs := w.Write(t.Context(), nil); errs != nil {
		t.Errorf("Write of nothing = %v", errs)
	}
}

func testGateways(t *testing.T, w world) {
	for _, tt := range []struct {
		name      string
		set, want []string
	}{
		{"none", nil, nil},
		{"one", []string{"192.0.2.1"}, []string{"192.0.2.1"}},
		{"both families, several ways", []string{"2001:db8::2", "192.0.2.3", "2001:db8::1", "192.0.2.2"}, []string{"192.0.2.2", "192.0.2.3", "2001:db8::1", "2001:db8::2"}},
		{"link-local", []string{"fe80::1"}, []string{"fe80::1"}},
		{"none again", nil, nil},
	} {
		w.other.SetGateways(parse(tt.set...)...)
		got, err := w.Gateways(t.Context())
		if want := parse(tt.want...); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: Gateways = %v, %v, want %v", tt.name, got, err, want)
		}
	}
}

// testGatewaysTold: a change of default routes is an event, and after the last one the answer is new.
func testGatewaysTold(t *testing.T, w world) {
	mustEnsure(t, w)
	w.other.SetGateways(parse("192.0.2.1")...)
	events := watchEvents(t, w)
	for _, hops := range [][]string{{"192.0.2.2"}, {"192.0.2.2", "192.0.2.3", "2001:db8::1"}, nil} {
		before, _ := w.Gateways(t.Context()) // a wrong answer that is kept would be seen below
		w.other.SetGateways(parse(hops...)...)
		for {
			events.until(t, link.DefaultRoutesChanged)
			got, err := w.Gateways(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if slices.Equal(got, parse(hops...)) {
				break
			}
			t.Logf("%v after %v, on the way to %v", got, before, hops)
		}
	}
}

func testRoutes(t *testing.T, w world) {
	wantRoutes(t, w)
	for range 2 {
		mustWriteRoutes(t, w, link.Add, "10.96.0.0/16", "fd00:96::/112", "10.97.0.0/24")
	}
	wantRoutes(t, w, "10.96.0.0/16", "fd00:96::/112", "10.97.0.0/24")
	for range 2 {
		mustWriteRoutes(t, w, link.Delete, "10.96.0.0/16", "fd00:96::/112")
	}
	wantRoutes(t, w, "10.97.0.0/24")
	if errs := w.WriteRoutes(t.Context(), nil); errs != nil {
		t.Errorf("WriteRoutes of nothing = %v", errs)
	}
	if got := w.Counters(); got.Rows != 10 || got.Failed != 0 {
		t.Errorf("Counters = %+v, want 10 rows, none failed", got)
	}
}

func testBadRoute(t *testing.T, w world) {
	rows := []link.RouteChange{{Op: link.Add}}
	for _, p := range []string{"0.0.0.0/0", "::/0", "127.0.0.0/8", "224.0.0.0/4", "fe80::/10", "10.96.0.1/16", "::ffff:10.96.0.0/112", "10.96.0.0/16"} {
		rows = append(rows, link.RouteChange{Op: link.Add, Prefix: netip.MustParsePrefix(p)})
	}
	rows = append(rows, link.RouteChange{Op: 9, Prefix: netip.MustParsePrefix("10.97.0.0/16")}, link.RouteChange{Op: link.Add, Prefix: netip.MustParsePrefix("fd00:96::/112")})
	good := map[int]bool{8: true, 10: true}
	errs := w.WriteRoutes(t.Context(), rows)
	if len(errs) != len(rows) {
		t.Fatalf("WriteRoutes returned %d errors for %d rows", len(errs), len(rows))
	}
	for i, err := range errs {
		if good[i] != (err == nil) {
			t.Errorf("row %d (%s): error %v", i, rows[i], err)
		}
	}
	wantRoutes(t, w, "10.96.0.0/16", "fd00:96::/112")
}

func testForeignRoute(t *testing.T, w world) {
	for _, text := range []string{"10.96.0.0/16", "fd00:96::/112"} {
		p := netip.MustParsePrefix(text)
		w.other.AddRouteByHand(p)
		wantRoutes(t, w)
		if errs := w.WriteRoutes(t.Context(), []link.RouteChange{{Op: link.Add, Prefix: p}}); len(errs) != 1 || !errors.Is(errs[0], link.ErrExist) {
			t.Errorf("WriteRoutes where another's route is = %v, want %v", errs, link.ErrExist)
		}
		mustWriteRoutes(t, w, link.Delete, text)
		if errs := w.WriteRoutes(t.Context(), []link.RouteChange{{Op: link.Add, Prefix: p}}); len(errs) != 1 || !errors.Is(errs[0], link.ErrExist) {
			t.Errorf("after a deletion WriteRoutes = %v, want %v: another's route was deleted", errs, link.ErrExist)
		}
		w.other.RemoveRouteByHand(p)
		mustWriteRoutes(t, w, link.Add, text)
		wantRoutes(t, w, text)
		mustWriteRoutes(t, w, link.Delete, text)
	}
}

// The kernel drops the IPv4 routes of a link with its last address.
func testRouteOutlivesAddresses(t *testing.T, w world) {
	mustEnsure(t, w)
	mustWriteRoutes(t, w, link.Add, "10.96.0.0/16", "fd00:96::/112")
	mustWrite(t, w, link.Add, "192.0.2.1", "2001:db8::1")
	mustWrite(t, w, link.Delete, "192.0.2.1", "2001:db8::1")
	wantRoutes(t, w, "10.96.0.0/16", "fd00:96::/112")
	if err := w.Remove(t.Context()); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	wantRoutes(t, w, "10.96.0.0/16", "fd00:96::/112")
}

func testRouteLost(t *testing.T, w world) {
	mustEnsure(t, w)
	mustWriteRoutes(t, w, link.Add, "10.96.0.0/16", "fd00:96::/112")
	events := watchEvents(t, w)
	for _, text := range []string{"10.96.0.0/16", "fd00:96::/112"} {
		p := netip.MustParsePrefix(text)
		// A deletion by this handle is not reported, and a deletion of a missing address leaves no
		// trace.
		for range 2 {
			mustWriteRoutes(t, w, link.Delete, text)
		}
		mustWriteRoutes(t, w, link.Add, text)
		w.other.LoseRoute(p)
		events.want(t, link.Event{Kind: link.OurRouteLost, Route: p})
		w.other.AddRouteByHand(p)
		w.other.RemoveRouteByHand(p) // another's
		mustWriteRoutes(t, w, link.Add, text)
	}
	wantRoutes(t, w, "10.96.0.0/16", "fd00:96::/112")
	w.other.AddElsewhere(netip.MustParseAddr("192.0.2.7"), "uplink0")
	events.want(t, link.Event{Kind: link.NodeAddressesChanged, Addr: netip.MustParseAddr("192.0.2.7")})
}

func testDetached(t *testing.T, w world) {
	mustEnsure(t, w)
	mustWrite(t, w, link.Add, "203.0.113.1", "203.0.113.2", "10.96.0.1")
	wantDetached(t, w)
	for range 2 {
		mustWriteDetached(t, w, link.Add, "203.0.113.1", "203.0.113.2")
	}
	wantAddrs(t, w, "203.0.113.1", "203.0.113.2", "10.96.0.1")
	wantDetached(t, w, "203.0.113.1", "203.0.113.2")
	wantRoutes(t, w)
	for range 2 {
		mustWriteDetached(t, w, link.Delete, "203.0.113.1")
	}
	wantDetached(t, w, "203.0.113.2")
	mustWrite(t, w, link.Delete, "203.0.113.2") // and a route that is no longer needed is left
	wantDetached(t, w, "203.0.113.2")
	if err := w.Remove(t.Context()); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	mustWriteDetached(t, w, link.Delete, "203.0.113.2")
	wantDetached(t, w)
}

// An address that is not bound is detached all the same, over both families, and one that
// is bound later is local for all packets, over IPv4.
func testCaptured(t *testing.T, w world) {
	mustEnsure(t, w)
	mustWriteDetached(t, w, link.Add, "203.0.113.1", "2001:db8::1", "2001:db8::2")
	wantAddrs(t, w)
	wantDetached(t, w, "2001:db8::1", "2001:db8::2", "203.0.113.1")
	mustWrite(t, w, link.Add, "203.0.113.1", "2001:db8::1")
	wantDetached(t, w, "2001:db8::1", "2001:db8::2", "203.0.113.1 in part")
	mustWriteDetached(t, w, link.Delete, "203.0.113.1", "2001:db8::1")
	wantDetached(t, w, "2001:db8::2")
	wantAddrs(t, w, "203.0.113.1", "2001:db8::1")
	mustWriteDetached(t, w, link.Delete, "2001:db8::2")
	wantDetached(t, w)
}

// An address that is bound again is local for all packets again.
func testDetachedLost(t *testing.T, w world) {
	mustEnsure(t, w)
	a := netip.MustParseAddr("203.0.113.1")
	mustWrite(t, w, link.Add, a.String())
	mustWriteDetached(t, w, link.Add, a.String())
	w.other.LoseAddress(a)
	mustWrite(t, w, link.Add, a.String())
	wantDetached(t, w, "203.0.113.1 in part")
	mustWrite(t, w, link.Add, a.String()) // it is there, and nothing changes
	mustWriteDetached(t, w, link.Add, a.String())
	wantDetached(t, w, a.String())
	mustWrite(t, w, link.Add, a.String())
	wantDetached(t, w, a.String())
}

func testNotDetached(t *testing.T, w world) {
	rows := append(changes(link.Add, "203.0.113.1", "127.0.0.1", "fe80::1"), link.Change{Op: 9, Addr: netip.MustParseAddr("203.0.113.1")})
	errs := w.WriteDetached(t.Context(), rows)
	if len(errs) != len(rows) || !errors.Is(errs[0], link.ErrNotExist) {
		t.Fatalf("WriteDetached without the link = %v, want %v first", errs, link.ErrNotExist)
	}
	mustEnsure(t, w)
	mustWrite(t, w, link.Add, "203.0.113.1")
	for i, err := range w.WriteDetached(t.Context(), rows) {
		if (err == nil) != (i == 0) {
			t.Errorf("row %d (%s): error %v", i, rows[i], err)
		}
	}
	wantDetached(t, w, "203.0.113.1")
	if errs := w.WriteDetached(t.Context(), nil); errs != nil {
		t.Errorf("WriteDetached of nothing = %v", errs)
	}
}

func mustWriteDetached(t *testing.T, w world, op link.Op, addrs ...string) {
	t.Helper()
	if errs := w.WriteDetached(t.Context(), changes(op, addrs...)); errs != nil {
		t.Fatalf("WriteDetached: %v", errors.Join(errs...))
	}
}

func wantDetached(t *testing.T, w world, want ...string) {
	t.Helper()
	found, err := w.ListDetached(t.Context())
	if err != nil {
		t.Fatalf("ListDetached: %v", err)
	}
	var got []string
	for a, complete := range found {
		text := a.String()
		if !complete {
			text += " in part"
		}
		got = append(got, text)
	}
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("detached (-want +got):\n%s", cmp.Diff(want, got))
	}
}

func mustWriteRoutes(t *testing.T, w world, op link.Op, ranges ...string) {
	t.Helper()
	rows := make([]link.RouteChange, len(ranges))
	for i, p := range ranges {
		rows[i] = link.RouteChange{Op: op, Prefix: netip.MustParsePrefix(p)}
	}
	if errs := w.WriteRoutes(t.Context(), rows); errs != nil {
		t.Fatalf("WriteRoutes: %v", errors.Join(errs...))
	}
}

func wantRoutes(t *testing.T, w world, want ...string) {
	t.Helper()
	found, err := w.ListRoutes(t.Context())
	if err != nil {
		t.Fatalf("ListRoutes: %v", err)
	}
	var got []string
	for p := range found {
		got = append(got, p.String())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(want, got) {
		t.Errorf("routes (-want +got):\n%s", cmp.Diff(want, got))
	}
}

func testLocal(t *testing.T, w world) {
	mustEnsure(t, w)
	mustWrite(t, w, link.Add, "10.96.0.1", "fd00:96::1")
	w.other.AddElsewhere(netip.MustParseAddr("192.0.2.7"), "uplink0")
	w.other.AddElsewhere(netip.MustParseAddr("2001:db8::7"), "uplink0")
	got, err := w.Local(t.Context())
	if err != nil {
		t.Fatalf("Local: %v", err)
	}
	want := map[netip.Addr]string{
		netip.MustParseAddr("192.0.2.7"): "uplink0", netip.MustParseAddr("2001:db8::7"): "uplink0",
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(sameAddr)); diff != "" {
		t.Errorf("Local (-want +got):\n%s", diff)
	}
}

func testNotListed(t *testing.T, w world) {
	mustEnsure(t, w)
	w.other.AddByHand(netip.MustParseAddr("169.254.20.10"))
	wantAddrs(t, w, "169.254.20.10") // node-local caches sit on such an address
}

func testAddressLost(t *testing.T, w world) {
	mustEnsure(t, w)
	mustWrite(t, w, link.Add, "10.96.0.1", "10.96.0.2", "fd00:96::1")
	events := watchEvents(t, w)
	for _, lost := range []string{"10.96.0.2", "fd00:96::1"} {
		w.other.LoseAddress(netip.MustParseAddr(lost))
		events.want(t, link.Event{Kind: link.OurAddressLost, Addr: netip.MustParseAddr(lost)})
	}
	wantAddrs(t, w, "10.96.0.1")
	mustWrite(t, w, link.Add, "10.96.0.2")
	wantAddrs(t, w, "10.96.0.1", "10.96.0.2")
}

func testLinkLost(t *testing.T, w world) {
	mustEnsure(t, w)
	mustWrite(t, w, link.Add, "10.96.0.1", "fd00:96::1")
	events := watchEvents(t, w)
	w.other.LoseLink()
	lost := events.until(t, link.OurLinkLost)
	want := []link.Event{
		{Kind: link.OurAddressLost, Addr: netip.MustParseAddr("10.96.0.1")},
		{Kind: link.OurAddressLost, Addr: netip.MustParseAddr("fd00:96::1")},
		{Kind: link.OurLinkLost},
	}
	if diff := cmp.Diff(want, lost, cmp.Comparer(func(a, b link.Event) bool { return a == b })); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	wantNoLink(t, w)
	if created, err := w.Ensure(t.Context()); err != nil || !created {
		t.Fatalf("Ensure = %v, %v, want created", created, err)
	}
	mustWrite(t, w, link.Add, "10.96.0.1")
	wantAddrs(t, w, "10.96.0.1")
	// The watch follows the new link of that name.
	w.other.LoseAddress(netip.MustParseAddr("10.96.0.1"))
	events.want(t, link.Event{Kind: link.OurAddressLost, Addr: netip.MustParseAddr("10.96.0.1")})
}

func testOwnWrites(t *testing.T, w world) {
	mustEnsure(t, w)
	events := watchEvents(t, w)
	all := slices.Concat(block("10.98.0.0", 250), block("fd00:98::", 50))
	var rows []link.Change
	for _, op := range []link.Op{link.Add, link.Delete, link.Delete, link.Add, link.Delete} {
		for _, a := range all {
			rows = append(rows, link.Change{Op: op, Addr: a})
		}
	}
	if errs := w.Write(t.Context(), rows); errs != nil {
		t.Fatalf("Write: %v", errors.Join(errs...))
	}
	// A deletion that found nothing must not hide a later loss.
	for _, lost := range []string{"10.98.0.1", "fd00:98::1"} {
		mustWrite(t, w, link.Add, lost)
		w.other.LoseAddress(netip.MustParseAddr(lost))
		events.want(t, link.Event{Kind: link.OurAddressLost, Addr: netip.MustParseAddr(lost)})
	}
}

func testOwnRemoval(t *testing.T, w world) {
	mustEnsure(t, w)
	mustWrite(t, w, link.Add, "10.96.0.1", "fd00:96::1")
	events := watchEvents(t, w)
	if err := w.Remove(t.Context()); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	mustEnsure(t, w)
	mustWrite(t, w, link.Add, "10.96.0.9")
	w.other.LoseAddress(netip.MustParseAddr("10.96.0.9"))
	events.want(t, link.Event{Kind: link.OurAddressLost, Addr: netip.MustParseAddr("10.96.0.9")})
}

func testNodeAddresses(t *testing.T, w world) {
	mustEnsure(t, w)
	events := watchEvents(t, w)
	a := netip.MustParseAddr("192.0.2.7")
	w.other.AddElsewhere(a, "uplink0")
	events.want(t, link.Event{Kind: link.NodeAddressesChanged, Addr: a})
	w.other.RemoveElsewhere(a)
	events.want(t, link.Event{Kind: link.NodeAddressesChanged, Addr: a})
	got, err := w.Local(t.Context())
	if err != nil || len(got) != 0 {
		t.Errorf("Local = %v, %v, want nothing", got, err)
	}
}

func testSecondWatch(t *testing.T, w world) {
	mustEnsure(t, w)
	events := watchEvents(t, w)
	if err := w.Watch(t.Context(), func(link.Event) {}); !errors.Is(err, link.ErrBusy) {
		t.Errorf("second Watch: %v, want %v", err, link.ErrBusy)
	}
	events.stop(t)
	watchEvents(t, w).stop(t)
}

func testClosed(t *testing.T, w world) {
	mustEnsure(t, w)
	events := watchEvents(t, w)
	w.Close()
	w.Close()
	events.ended(t)
	if _, err := w.List(t.Context()); err == nil || errors.Is(err, link.ErrNotExist) {
		t.Errorf("List on a closed handle: %v, want an error that does not say absent", err)
	}
}

func testContextOver(t *testing.T, w world) {
	mustEnsure(t, w)
	mustWrite(t, w, link.Add, "10.96.0.1")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	errs := w.Write(over, changes(link.Add, "10.96.0.2", "10.96.0.3"))
	for i, err := range errs {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, link.ErrBusy) {
			t.Errorf("row %d: %v, want busy and cancelled", i, err)
		}
	}
	if len(errs) != 2 {
		t.Errorf("Write returned %d errors, want 2", len(errs))
	}
	if _, err := w.List(over); !errors.Is(err, context.Canceled) {
		t.Errorf("List: %v, want cancelled", err)
	}
	wantAddrs(t, w, "10.96.0.1")
}

// eventLog collects what a Watch tells.
type eventLog struct {
	cancel context.CancelFunc
	end    chan error
	ch     chan link.Event
}

// watchEvents starts a watch and returns when it is ready.
func watchEvents(t *testing.T, w world) *eventLog {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &eventLog{cancel: cancel, end: make(chan error, 1), ch: make(chan link.Event, 4096)}
	var running sync.WaitGroup
	running.Go(func() { l.end <- w.Watch(ctx, func(e link.Event) { l.ch <- e }) })
	t.Cleanup(func() { cancel(); running.Wait() })
	l.want(t, link.Event{Kind: link.Ready})
	return l
}

func (l *eventLog) next(t *testing.T) link.Event {
	t.Helper()
	select {
	case e := <-l.ch:
		return e
	case err := <-l.end:
		t.Fatalf("watch ended: %v", err)
	case <-time.After(poll.Patience):
		t.Fatalf("waited %s in vain for an event", poll.Patience)
	}
	return link.Event{}
}

func (l *eventLog) want(t *testing.T, want link.Event) {
	t.Helper()
	if got := l.next(t); got != want {
		t.Fatalf("event %q, want %q", got, want)
	}
}

// until collects events up to the first of a kind, sorted by address.
func (l *eventLog) until(t *testing.T, kind link.Kind) []link.Event {
	t.Helper()
	var all []link.Event
	for {
		e := l.next(t)
		if e.Kind == kind {
			slices.SortFunc(all, func(a, b link.Event) int { return a.Addr.Compare(b.Addr) })
			return append(all, e)
		}
		all = append(all, e)
	}
}

func (l *eventLog) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.ended(t)
}

func (l *eventLog) ended(t *testing.T) {
	t.Helper()
	select {
	case err := <-l.end:
		if err != nil {
			t.Errorf("watch ended with %v", err)
		}
	case <-time.After(poll.Patience):
		t.Fatalf("waited %s in vain for the end of the watch", poll.Patience)
	}
}

func sameAddr(a, b netip.Addr) bool { return a == b }

func parse(addrs ...string) (out []netip.Addr) {
	for _, a := range addrs {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func changes(op link.Op, addrs ...string) []link.Change {
	rows := make([]link.Change, len(addrs))
	for i, a := range addrs {
		rows[i] = link.Change{Op: op, Addr: netip.MustParseAddr(a)}
	}
	return rows
}

// block returns n addresses after start.
func block(start string, n int) []netip.Addr {
	addrs := make([]netip.Addr, n)
	a := netip.MustParseAddr(start)
	for i := range addrs {
		a = a.Next()
		addrs[i] = a
	}
	return addrs
}

func mustEnsure(t *testing.T, w world) {
	t.Helper()
	if created, err := w.Ensure(t.Context()); err != nil || !created {
		t.Fatalf("Ensure = %v, %v, want created", created, err)
	}
}

func mustWrite(t *testing.T, w world, op link.Op, addrs ...string) {
	t.Helper()
	if errs := w.Write(t.Context(), changes(op, addrs...)); errs != nil {
		t.Fatalf("Write: %v", errors.Join(errs...))
	}
}

func wantAddrs(t *testing.T, w world, want ...string) {
	t.Helper()
	wantAddrsExactly(t, w, parse(want...))
}

func wantAddrsExactly(t *testing.T, w world, want []netip.Addr) {
	t.Helper()
	got, err := w.List(t.Context())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	sorted := slices.SortedFunc(maps.Keys(got), netip.Addr.Compare)
	want = slices.SortedFunc(slices.Values(want), netip.Addr.Compare)
	if !slices.Equal(want, sorted) {
		t.Errorf("addresses (-want +got):\n%s", cmp.Diff(want, sorted, cmp.Comparer(sameAddr)))
	}
}

func wantNoLink(t *testing.T, w world) {
	t.Helper()
	if got, err := w.List(t.Context()); got != nil || !errors.Is(err, link.ErrNotExist) {
		t.Fatalf("List = %v, %v, want %v", got, err, link.ErrNotExist)
	}
}
