package link_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

// announcements are rows of a table.
func announcements(op link.Op, table uint32, addrs ...string) []link.AnnounceChange {
	var out []link.AnnounceChange
	for _, a := range addrs {
		out = append(out, link.AnnounceChange{Op: op, Announcement: link.Announcement{Table: table, Addr: netip.MustParseAddr(a)}})
	}
	return out
}

func mustAnnounce(t *testing.T, w world, op link.Op, table uint32, addrs ...string) {
	t.Helper()
	if errs := w.WriteAnnounced(t.Context(), announcements(op, table, addrs...)); errs != nil {
		t.Fatalf("WriteAnnounced: %v", errors.Join(errs...))
	}
}

// wantAnnounced compares those of a table, or of all for 0.
func wantAnnounced(t *testing.T, w world, table uint32, want ...string) {
	t.Helper()
	found, err := w.ListAnnounced(t.Context(), table)
	if err != nil {
		t.Fatalf("ListAnnounced: %v", err)
	}
	var got []string
	for a := range found {
		got = append(got, a.String())
	}
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("announced in table %d (-want +got):\n%s", table, cmp.Diff(want, got))
	}
}

// Announcements need no link, are in any table, and change nothing of what is local.
func testAnnounced(t *testing.T, w world) {
	wantAnnounced(t, w, 0)
	wantAnnounced(t, w, 100)
	for range 2 {
		mustAnnounce(t, w, link.Add, 100, "203.0.113.1", "2001:db8::1", "203.0.113.2")
	}
	mustAnnounce(t, w, link.Add, 70000, "203.0.113.1")
	wantAnnounced(t, w, 100, "blackhole 2001:db8::1/128 table 100", "blackhole 203.0.113.1/32 table 100", "blackhole 203.0.113.2/32 table 100")
	wantAnnounced(t, w, 70000, "blackhole 203.0.113.1/32 table 70000")
	wantRoutes(t, w)
	wantDetached(t, w)
	for range 2 {
		mustAnnounce(t, w, link.Delete, 100, "203.0.113.1", "2001:db8::1")
	}
	wantAnnounced(t, w, 0, "blackhole 203.0.113.1/32 table 70000", "blackhole 203.0.113.2/32 table 100")
	if errs := w.WriteAnnounced(t.Context(), nil); errs != nil {
		t.Errorf("WriteAnnounced of nothing = %v", errs)
	}
	if got := w.Counters(); got.Rows != 11 || got.Failed != 0 {
		t.Errorf("Counters = %+v, want 11 rows, none failed", got)
	}
	mustAnnounce(t, w, link.Delete, 100, "203.0.113.2")
	mustAnnounce(t, w, link.Delete, 70000, "203.0.113.1")
	wantAnnounced(t, w, 0)
}

func testBadAnnouncement(t *testing.T, w world) {
	rows := announcements(link.Add, 100, "0.0.0.0", "127.0.0.1", "224.0.0.1", "fe80::1", "::ffff:203.0.113.1", "203.0.113.1")
	for _, table := range []uint32{0, 253, 254, 255, link.DetachedTable} {
		rows = append(rows, announcements(link.Add, table, "203.0.113.9")...)
	}
	rows = append(rows, link.AnnounceChange{Op: 9}, link.AnnounceChange{Op: link.Add})
	rows = append(rows, announcements(link.Add, 100, "2001:db8::1")...)
	good := map[int]bool{5: true, len(rows) - 1: true}
	errs := w.WriteAnnounced(t.Context(), rows)
	if len(errs) != len(rows) {
		t.Fatalf("WriteAnnounced returned %d errors for %d rows", len(errs), len(rows))
	}
	for i, err := range errs {
		if good[i] != (err == nil) {
			t.Errorf("row %d (%s): error %v", i, rows[i], err)
		}
	}
	wantAnnounced(t, w, 0, "blackhole 2001:db8::1/128 table 100", "blackhole 203.0.113.1/32 table 100")
}

func testForeignAnnouncement(t *testing.T, w world) {
	for _, text := range []string{"203.0.113.1", "2001:db8::1"} {
		a := link.Announcement{Table: 100, Addr: netip.MustParseAddr(text)}
		w.other.AnnounceByHand(a)
		wantAnnounced(t, w, 0)
		for _, when := range []string{"first", "after a deletion"} {
			errs := w.WriteAnnounced(t.Context(), []link.AnnounceChange{{Op: link.Add, Announcement: a}})
			if len(errs) != 1 || !errors.Is(errs[0], link.ErrExist) || !strings.Contains(errs[0].Error(), a.String()) {
				t.Errorf("%s: WriteAnnounced where another's route is = %v, want %v", when, errs, link.ErrExist)
			}
			mustAnnounce(t, w, link.Delete, 100, text)
		}
		w.other.RemoveAnnouncedByHand(a)
		mustAnnounce(t, w, link.Add, 100, text)
		wantAnnounced(t, w, 100, a.String())
		mustAnnounce(t, w, link.Delete, 100, text)
	}
}

func testAnnouncementLost(t *testing.T, w world) {
	mustEnsure(t, w)
	mustAnnounce(t, w, link.Add, 100, "203.0.113.1", "2001:db8::1")
	events := watchEvents(t, w)
	for _, text := range []string{"203.0.113.1", "2001:db8::1"} {
		a := link.Announcement{Table: 100, Addr: netip.MustParseAddr(text)}
		// A deletion by this handle is not reported, and one of a missing route leaves no trace.
		for range 2 {
			mustAnnounce(t, w, link.Delete, 100, text)
		}
		mustAnnounce(t, w, link.Add, 100, text)
		w.other.LoseAnnouncement(a)
		events.want(t, link.Event{Kind: link.OurAnnouncementLost, Announced: a})
		mustAnnounce(t, w, link.Add, 100, text)
	}
	wantAnnounced(t, w, 100, "blackhole 2001:db8::1/128 table 100", "blackhole 203.0.113.1/32 table 100")
	w.other.AddElsewhere(netip.MustParseAddr("192.0.2.7"), "uplink0")
	events.want(t, link.Event{Kind: link.NodeAddressesChanged, Addr: netip.MustParseAddr("192.0.2.7")})
}

func testRulesTo(t *testing.T, w world) {
	w.other.LeadTo(100, 5000, 6000)
	w.other.LeadTo(70000, 7000)
	for table, want := range map[uint32][]uint32{100: {5000, 6000}, 70000: {7000}, 200: nil} {
		if got, err := w.RulesTo(t.Context(), table); err != nil || !slices.Equal(got, want) {
			t.Errorf("rules to table %d: %v, %v, want %v", table, got, err, want)
		}
	}
}

func TestWriteAnnouncements(t *testing.T) {
	var b strings.Builder
	rows := []link.Announcement{
		{Table: 200, Addr: netip.MustParseAddr("203.0.113.1")}, {Table: 100, Addr: netip.MustParseAddr("2001:db8::1")}, {Table: 100, Addr: netip.MustParseAddr("203.0.113.9")},
	}
	if err := link.WriteAnnouncements(&b, slices.Values(rows)); err != nil {
		t.Fatal(err)
	}
	want := "ip route add blackhole 203.0.113.9/32 table 100 proto 73\nip route add blackhole 2001:db8::1/128 table 100 proto 73\n" +
		"ip route add blackhole 203.0.113.1/32 table 200 proto 73\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}
