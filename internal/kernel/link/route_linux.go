package link

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Gateways returns the next hops of the default routes of both families in the
// main table, those of multipath routes included, sorted and without duplicates.
// A default route without a next hop (a point-to-point link) has none.
func (h *Handle) Gateways(ctx context.Context) ([]netip.Addr, error) {
	var hops []netip.Addr
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rows, err := steady(ctx, h, func(c *conn) (rows []netip.Addr, err error) {
			err = c.query(dumpRoutes(family), func(m syscall.NetlinkMessage) { rows = append(rows, defaultHops(m)...) })
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

// dumpRoutes asks for the routes of all tables of a family. As with addresses a
// dump that the kernel filters may be shorter than it should and not say so.
func dumpRoutes(family int) *nl.NetlinkRequest {
	return request(unix.RTM_GETROUTE, unix.NLM_F_DUMP, &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
}

// defaultHops returns the next hops of a route if it is a default route of the
// main table.
func defaultHops(m syscall.NetlinkMessage) []netip.Addr {
	if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg {
		return nil
	}
	info := nl.DeserializeRtMsg(m.Data)
	inet := info.Family == unix.AF_INET || info.Family == unix.AF_INET6
	if !inet || info.Dst_len != 0 || info.Type != unix.RTN_UNICAST || info.Flags&unix.RTM_F_CLONED != 0 {
		return nil
	}
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
