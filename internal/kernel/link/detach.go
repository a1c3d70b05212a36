package link

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"slices"
)

// An address is detached when it is local to marked packets alone: a route in a table of ours makes
// it local, and only they look there. Packets with other destinations or without the mark follow
// the other tables. Two kinds of addresses are detached.
//
// Captured by port: an address that another machine has, too, is not bound. Packets to the ports of
// a Service get the mark, and all other packets go to that machine.
//
//	ip route add local VIP dev lo table 7373 proto 73
//	ip rule add fwmark MARK/MARK lookup 7373 priority 73
//
// Answered by others: an IPv4 address that is bound, and from which backends answer
// themselves. The route by which the kernel makes every address local goes.
//
//	ip route del local VIP dev kube-ipvs0 table local
//
// The reason: the kernel drops a forwarded packet whose source is local to this machine, for any
// value of rp_filter (__fib_validate_source in net/ipv4/fib_frontend.c). The exception,
// accept_local of the link, would apply to all sources of all senders there. It asks for the source
// without the mark, or with the mark of the packet itself (src_valid_mark), and answers are not
// marked. With an address that is not bound at all the kernel could send no ICMP from it, such as
// "fragmentation needed" (icmp_route_lookup in net/ipv4/icmp.c takes a source that is bound). IPv6
// does not look at the source, so its bound addresses stay local.
//
// The rule comes after that of the table "local", which is the first of all. It exists as long as
// the table has a route of ours in its family.

const (
	// DetachedTable is the routing table of detached addresses. Rules that lead there are
	// ours, and routes of RouteProtocol in it.
	DetachedTable = 7373
	// detachedPriority is the priority of the rule.
	detachedPriority = 73
)

// DetachMark is the mark of packets to detached addresses, one bit. Bits 13 to 15 are those of the
// port-mapping plug-in of CNI and of Kubernetes; the bit that is taken is skipped.
func DetachMark(taken uint8) uint32 {
	if taken == 12 {
		return 1 << 11
	}
	return 1 << 12
}

// WriteDetached prints how addresses are detached, sorted, as commands of ip(8). Of those
// that are bound the route goes that makes them local for all packets.
func WriteDetached(w io.Writer, mark uint32, addrs iter.Seq[netip.Addr], bound func(netip.Addr) bool) error {
	all := slices.SortedFunc(addrs, netip.Addr.Compare)
	out := bufio.NewWriter(w)
	for _, a := range all {
		fmt.Fprintf(out, "ip route add local %s dev lo table %d proto %d\n", a, DetachedTable, RouteProtocol)
	}
	for _, tool := range []string{"ip", "ip -6"} {
		if slices.ContainsFunc(all, func(a netip.Addr) bool { return a.Is4() == (tool == "ip") }) {
			fmt.Fprintf(out, "%s rule add fwmark %#x/%#x lookup %d priority %d\n", tool, mark, mark, DetachedTable, detachedPriority)
		}
	}
	for _, a := range all {
		if a.Is4() && bound(a) {
			fmt.Fprintf(out, "ip route del local %s dev %s table local\n", a, DefaultName)
		}
	}
	return out.Flush()
}
