package link

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"slices"
)

// A route of type local makes every address of a range local to this machine, as an address on a
// link does for one (ip-route(8), "local"). The kernel itself adds such a route for each address
// (fib_add_ifaddr in net/ipv4/fib_frontend.c).
//
// Ours lead to the loopback link, not to the one with the addresses. The kernel drops all IPv4
// routes of a link together with the last IPv4 address on it, without a notification
// (fib_inetaddr_event calls fib_disable_ip with force). It also refuses IPv6 routes to a link that
// is down (fib6_nh_init in net/ipv6/route.c: ENETDOWN). Where packets go in is the same: for either
// family the kernel takes the loopback link for what is local.

// RouteProtocol marks the routes that are ours (rtm_protocol, rtnetlink(7)). The kernel keeps
// values above RTPROT_STATIC as they are and assigns none (include/uapi/linux/rtnetlink.h). This
// value is in neither that file nor rt_protos of iproute2, and Calico (80), Cilium (30) and FRR
// (186 and up) do not use it.
const RouteProtocol = 73

// RouteChange is one row of a WriteRoutes: a range that becomes local, or stops to be.
type RouteChange struct {
	Op     Op
	Prefix netip.Prefix
}

// String returns the change as ip-route(8) would take it, without link and protocol.
func (c RouteChange) String() string {
	if !c.Prefix.IsValid() {
		return verb(c.Op) + " local invalid range"
	}
	return verb(c.Op) + " local " + c.Prefix.String()
}

// Check returns why the row can never be written, or nil. A range that holds what no
// machine may take for its own is refused, and so is one with bits behind its length.
func (c RouteChange) Check() error {
	a := c.Prefix.Addr()
	switch {
	case c.Op != Add && c.Op != Delete:
		return errors.New("unknown operation")
	case !c.Prefix.IsValid():
		return errors.New("no range")
	case c.Prefix != c.Prefix.Masked() || a.Is4In6():
		return errors.New("range is not in canonical form")
	case c.Prefix.Bits() == 0 || !usable(a) || a.IsUnspecified() || a.IsMulticast():
		return errors.New("range cannot be local")
	}
	return nil
}

// ComparePrefixes orders ranges by address, the wider of two before the other.
func ComparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// WriteRoutes prints routes of ours, sorted, one command of ip-route(8) a line.
func WriteRoutes(w io.Writer, routes iter.Seq[netip.Prefix]) error {
	out := bufio.NewWriter(w)
	for _, p := range slices.SortedFunc(routes, ComparePrefixes) {
		fmt.Fprintf(out, "ip route add local %s dev lo proto %d\n", p, RouteProtocol)
	}
	return out.Flush()
}
