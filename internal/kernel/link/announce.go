package link

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"slices"
)

// An address is announced by a route to it in a table of the operator's choice, which a routing
// daemon (BIRD, FRR) reads and passes on to routers:
//
//	ip route add blackhole VIP table N proto 73
//
// No rule leads to the table, so no packet of this machine follows the route. Daemons read routes of
// type blackhole, as for a static route without a next hop, and ignore those of type local. A route
// of type unicast would need a link that is up, and the kernel turns an IPv6 one over the loopback
// link into one that rejects (ip6_route_info_create in net/ipv6/route.c).

// Announcement is the route by which an address is announced: /32 or /128 in Table.
type Announcement struct {
	Table uint32
	Addr  netip.Addr
}

// String returns the announcement as ip-route(8) takes it, without the protocol.
func (a Announcement) String() string {
	if !a.Addr.IsValid() {
		return fmt.Sprintf("blackhole invalid address table %d", a.Table)
	}
	return fmt.Sprintf("blackhole %s table %d", prefixOf(a.Addr), a.Table)
}

// Compare orders by table, then address.
func (a Announcement) Compare(o Announcement) int {
	return cmp.Or(cmp.Compare(a.Table, o.Table), a.Addr.Compare(o.Addr))
}

// The tables that the kernel uses itself (rtnetlink(7), rtm_table).
const (
	tableDefault = 253
	tableMain    = 254
	tableLocal   = 255
)

// CheckAnnounceTable returns why a routing table cannot hold announcements, or nil: packets follow
// its routes by rules that every machine has, or by ours.
func CheckAnnounceTable(table uint32) error {
	switch table {
	case 0:
		return errors.New("0 is no table")
	case tableDefault, tableMain, tableLocal:
		return fmt.Errorf("packets of this machine follow the routes in table %d", table)
	case DetachedTable:
		return fmt.Errorf("table %d has the routes of detached addresses", table)
	}
	return nil
}

// AnnounceChange is one row of a WriteAnnounced.
type AnnounceChange struct {
	Op Op
	Announcement
}

// String returns the change as ip-route(8) takes it, without the protocol.
func (c AnnounceChange) String() string { return verb(c.Op) + " " + c.Announcement.String() }

// Check returns why the row can never be written, or nil.
func (c AnnounceChange) Check() error {
	if err := (Change{c.Op, c.Addr}).Check(); err != nil {
		return err
	}
	if c.Op == Delete && c.Table != 0 {
		return nil // one that is found is deleted wherever it is
	}
	return CheckAnnounceTable(c.Table)
}

// WriteAnnouncements prints announcements, sorted, one command of ip-route(8) a line.
func WriteAnnouncements(w io.Writer, rows iter.Seq[Announcement]) error {
	out := bufio.NewWriter(w)
	for _, a := range slices.SortedFunc(rows, Announcement.Compare) {
		fmt.Fprintf(out, "ip route add %s proto %d\n", a, RouteProtocol)
	}
	return out.Flush()
}
