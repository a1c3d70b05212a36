package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// defaultRoutes is the last result of Gateways. It stays valid while a Watch runs and reports no
// change. A node that speaks BGP has hundreds of thousands of routes, and the kernel cannot dump
// only the default ones.
type defaultRoutes struct {
	mu sync.Mutex
	// watched: the watch reports changes. read is when hops were read, zero for never, and changes
	// counts what came since the watch began.
	watched bool
	read    time.Time
	changes uint64
	hops    []netip.Addr
}

// rereadAfter is when the routes are read again without an event: the kernel tells nothing of
// an IPv4 route that goes with its link (fib_sync_down_dev, net/ipv4/fib_semantics.c). Until then
// an old next hop counts as one, and no Service's address is bound that was.
const rereadAfter = 10 * time.Minute

// changed marks the last read as outdated; watched: from now on changes are reported.
func (d *defaultRoutes) changed(watched bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched, d.read = watched, time.Time{}
	d.changes++
}

// known returns what holds still.
func (d *defaultRoutes) known() (hops []netip.Addr, changes uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.hops), d.changes, d.watched && time.Since(d.read) < rereadAfter
}

// keep stores what was read, unless something has changed since.
func (d *defaultRoutes) keep(hops []netip.Addr, changes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changes == changes {
		d.hops, d.read = slices.Clone(hops), time.Now()
	}
}

// Gateways returns the next hops of the default routes of both families in the main table, those of
// multipath routes included, sorted and without duplicates. A default route without a next hop (a
// point-to-point link) has none. While a Watch runs, the kernel is read again after a reported
// change, and every ten minutes.
func (h *Handle) Gateways(ctx context.Context) ([]netip.Addr, error) {
	hops, changes, ok := h.defaults.known()
	if ok {
		return hops, nil
	}
	hops, err := h.readGateways(ctx)
	if err == nil {
		h.defaults.keep(hops, changes)
	}
	return hops, err
}

func (h *Handle) readGateways(ctx context.Context) ([]netip.Addr, error) {
	var hops []netip.Addr
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rows, err := steady(ctx, h, func(c *conn) (rows []netip.Addr, err error) {
			err = c.routes(family, unix.RT_TABLE_MAIN, unix.RTN_UNICAST, func(m syscall.NetlinkMessage) { rows = append(rows, defaultHops(m)...) })
			return rows, err
		})
		if err != nil {
			return nil, fmt.Errorf("list default routes: %w", err)
		}
		hops = append(hops, rows...)
	}
	slices.SortFunc(hops, netip.Addr.Compare)
	return slices.Compact(hops), nil
}

// routes dumps the routes of one table that have a type. A kernel before 4.20 does not
// filter and sends all of them, so each must look at what it gets.
func (c *conn) routes(family int, table uint32, kind uint8, each func(syscall.NetlinkMessage)) error {
	c.strict(true)
	defer c.strict(false)
	info := &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family), Type: kind}}
	err := c.query(request(unix.RTM_GETROUTE, unix.NLM_F_DUMP, info, nl.NewRtAttr(unix.RTA_TABLE, nl.Uint32Attr(table))), each)
	if errors.Is(err, ErrNotExist) {
		return nil // a table exists while it has a route (inet_dump_fib, net/ipv4/fib_frontend.c)
	}
	return err
}

// isDefaultRoute reports whether a message is about a default route, of any table.
func isDefaultRoute(m syscall.NetlinkMessage) bool {
	if len(m.Data) < unix.SizeofRtMsg {
		return false
	}
	info := nl.DeserializeRtMsg(m.Data)
	inet := info.Family == unix.AF_INET || info.Family == unix.AF_INET6
	return inet && info.Dst_len == 0 && info.Type == unix.RTN_UNICAST && info.Flags&unix.RTM_F_CLONED == 0
}

// defaultHops returns the next hops of a route if it is a default route of the
// main table.
func defaultHops(m syscall.NetlinkMessage) []netip.Addr {
	if m.Header.Type != unix.RTM_NEWROUTE || !isDefaultRoute(m) {
		return nil
	}
	info := nl.DeserializeRtMsg(m.Data)
	attrs, err := parseAttrs(m.Data[unix.SizeofRtMsg:])
	if err != nil || table(info, attrs) != unix.RT_TABLE_MAIN {
		return nil
	}
	return nextHops(attrs)
}

// table is the routing table; the header has room for the first 255 only.
func table(info *nl.RtMsg, attrs []syscall.NetlinkRouteAttr) uint32 {
	for _, a := range attrs {
		if a.Attr.Type == unix.RTA_TABLE && len(a.Value) >= 4 {
			return nl.NativeEndian().Uint32(a.Value)
		}
	}
	return uint32(info.Table)
}

func nextHops(attrs []syscall.NetlinkRouteAttr) (out []netip.Addr) {
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.RTA_GATEWAY:
			if hop, ok := netip.AddrFromSlice(a.Value); ok {
				out = append(out, hop)
			}
		case unix.RTA_VIA: // the next hop is of the other family (RFC 5549)
			if hop, ok := netip.AddrFromSlice(a.Value[min(2, len(a.Value)):]); ok {
				out = append(out, hop)
			}
		case unix.RTA_MULTIPATH:
			out = append(out, multipath(a.Value)...)
		}
	}
	return out
}

// multipath reads a list of next hops, each with attributes of its own.
func multipath(b []byte) (out []netip.Addr) {
	for len(b) >= unix.SizeofRtNexthop {
		size := int(nl.DeserializeRtNexthop(b).RtNexthop.Len)
		if size < unix.SizeofRtNexthop || size > len(b) {
			return out
		}
		if attrs, err := parseAttrs(b[unix.SizeofRtNexthop:size]); err == nil {
			out = append(out, nextHops(attrs)...)
		}
		b = b[min(size, len(b)):]
	}
	return out
}
