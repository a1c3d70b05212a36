package link

import (
	"bytes"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// heard is a message as the kernel sends it of what we would write.
func heard(kind uint16, r *nl.NetlinkRequest) []byte {
	r.Type = kind
	return r.Serialize()
}

// changeAddr is a change as the library packs it.
func changeAddr(c Change, index uint32) *nl.NetlinkRequest {
	kind, flags := unix.RTM_DELADDR, 0
	if c.Op == Add {
		kind, flags = unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	family := unix.AF_INET
	if c.Addr.Is6() {
		family = unix.AF_INET6
	}
	info := nl.NewIfAddrmsg(family)
	info.Prefixlen, info.Index = uint8(c.Addr.BitLen()), index
	raw := c.Addr.AsSlice()
	r := request(kind, flags, info, nl.NewRtAttr(unix.IFA_LOCAL, raw), nl.NewRtAttr(unix.IFA_ADDRESS, raw))
	if c.Op == Add && c.Addr.Is6() {
		r.AddData(nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(unix.IFA_F_NODAD)))
	}
	return r
}

// Messages packed by this package equal those packed by the library.
func TestChangesArePackedAsByTheLibrary(t *testing.T) {
	for _, op := range []Op{Add, Delete} {
		for _, addr := range []string{"10.96.0.10", "fd00:96::10"} {
			c := Change{Op: op, Addr: netip.MustParseAddr(addr)}
			want := changeAddr(c, 7)
			want.Seq, want.Flags = 42, want.Flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK
			before := []byte("before")
			got := appendChange(before, c, 7, 42, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
			if !bytes.Equal(got[len(before):], want.Serialize()) {
				t.Errorf("%s: %x, not %x", c, got[len(before):], want.Serialize())
			}
			if len(got)-len(before) > maxChange {
				t.Errorf("%s: %d bytes, more than %d", c, len(got)-len(before), maxChange)
			}
		}
	}
}

// seeds are of each kind of message that is read.
func seeds() [][]byte {
	vip, route := netip.MustParseAddr("10.96.0.10"), netip.MustParsePrefix("10.96.0.0/12")
	via := nl.NewRtAttr(unix.RTA_MULTIPATH, (&nl.RtNexthop{RtNexthop: unix.RtNexthop{Len: unix.SizeofRtNexthop}}).Serialize())
	gateway := nl.NewRtAttr(unix.RTA_GATEWAY, []byte{192, 0, 2, 1})
	hops := &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}}
	return [][]byte{
		heard(unix.RTM_NEWLINK, newLink("kube-ipvs0", "dummy")),
		heard(unix.RTM_DELLINK, linkByName("kube-ipvs0")),
		heard(unix.RTM_NEWADDR, changeAddr(Change{Op: Add, Addr: vip}, 7)),
		heard(unix.RTM_DELADDR, changeAddr(Change{Op: Add, Addr: netip.MustParseAddr("fd00:96::10")}, 7)),
		heard(unix.RTM_DELROUTE, RouteChange{Op: Add, Prefix: route}.request()),
		heard(unix.RTM_NEWROUTE, detachedRoute(vip, true)),
		heard(unix.RTM_NEWROUTE, request(unix.RTM_NEWROUTE, 0, hops, gateway, via)),
		heard(unix.RTM_NEWRULE, changeRule(tableRule{unix.AF_INET, 0x4000, 0x4000}, true)),
		// The last attribute, and so the message, ends without its padding.
		{29, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 32, 0, 0, 7, 0, 0, 0, 5, 0, 1, 0, 10},
		{16, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0},
	}
}

// Each kind of message is read as what it is, which is what the fuzzer begins with.
func TestMessagesAreRead(t *testing.T) {
	read := map[string]bool{}
	for _, b := range seeds() {
		messages, err := parseMessages(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			for name := range readAll(t, m) {
				read[name] = true
			}
		}
	}
	for _, name := range []string{"link", "address", "route", "host route", "rule", "hops"} {
		if !read[name] {
			t.Errorf("no message is read as a %s: %v", name, read)
		}
	}
}

// FuzzMessages: with any contents of a datagram, reading it ends and does not panic, and what
// is taken for something is whole.
func FuzzMessages(f *testing.F) {
	all := seeds()
	for _, b := range append(all, slices.Concat(all...)) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		messages, err := parseMessages(b)
		if err != nil {
			return
		}
		for _, m := range messages {
			readAll(t, m)
		}
	})
}

// readAll gives a message to every reader, whatever its type is, and returns the ones that
// took it.
func readAll(t *testing.T, m syscall.NetlinkMessage) map[string]bool {
	t.Helper()
	took := map[string]bool{}
	expect := func(name string, taken, whole bool, what any) {
		took[name] = taken || took[name]
		if taken && !whole {
			t.Errorf("%s %+v", name, what)
		}
		if !taken {
			delete(took, name)
		}
	}
	a, ok := parseAddr(m)
	expect("address", ok, a.addr.IsValid(), a)
	d, ok := parseLink(m)
	expect("link", ok, true, d)
	p, ok := ourRoute(m)
	expect("route", ok, p.IsValid(), p)
	r, ok := parseHostRoute(m)
	expect("host route", ok, r.to.IsValid(), r)
	mark, ok := ourRule(m)
	expect("rule", ok, true, mark)
	for _, hop := range defaultHops(m) {
		expect("hops", true, hop.IsValid(), hop)
	}
	_ = kernelError(m.Data)
	w := watch{name: "kube-ipvs0", ownEvents: &ownEvents{}, defaults: &defaultRoutes{}, index: 7}
	event, ok := w.read(m)
	expect("event", ok, event.Kind != 0, event)
	return took
}
