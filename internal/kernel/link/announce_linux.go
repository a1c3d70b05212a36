package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ListAnnounced returns the announcements that are ours, of both families: those of one table, or of
// all tables for table 0. The kernel goes over all routes of the tables that it is asked for.
func (h *Handle) ListAnnounced(ctx context.Context, table uint32) (map[Announcement]struct{}, error) {
	out := map[Announcement]struct{}{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rows, err := steady(ctx, h, func(c *conn) (rows []Announcement, err error) {
			err = c.announced(family, table, func(m syscall.NetlinkMessage) {
				if a, ok := ourAnnouncement(m); ok && m.Header.Type == unix.RTM_NEWROUTE && (table == 0 || a.Table == table) {
					rows = append(rows, a)
				}
			})
			return rows, err
		})
		if err != nil {
			return nil, fmt.Errorf("list announced addresses: %w", err)
		}
		for _, a := range rows {
			out[a] = struct{}{}
		}
	}
	return out, nil
}

// announced dumps the routes of our protocol that drop packets. A kernel before 4.20 does not filter
// and sends all routes, so each must look at what it gets.
func (c *conn) announced(family int, table uint32, each func(syscall.NetlinkMessage)) error {
	c.strict(true)
	defer c.strict(false)
	parts := []nl.NetlinkRequestData{&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family), Type: unix.RTN_BLACKHOLE, Protocol: RouteProtocol}}}
	if table != 0 {
		parts = append(parts, nl.NewRtAttr(unix.RTA_TABLE, nl.Uint32Attr(table)))
	}
	err := c.query(request(unix.RTM_GETROUTE, unix.NLM_F_DUMP, parts...), each)
	if errors.Is(err, ErrNotExist) {
		return nil // a table exists while it has a route (inet_dump_fib, net/ipv4/fib_frontend.c)
	}
	return err
}

// ourAnnouncement returns the announcement of a route that is ours.
func ourAnnouncement(m syscall.NetlinkMessage) (Announcement, bool) {
	if len(m.Data) < unix.SizeofRtMsg {
		return Announcement{}, false
	}
	info := nl.DeserializeRtMsg(m.Data)
	inet := info.Family == unix.AF_INET || info.Family == unix.AF_INET6
	if !inet || info.Protocol != RouteProtocol || info.Type != unix.RTN_BLACKHOLE || info.Flags&unix.RTM_F_CLONED != 0 {
		return Announcement{}, false
	}
	attrs, err := parseAttrs(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return Announcement{}, false
	}
	a := Announcement{Table: table(info, attrs)}
	for _, one := range attrs {
		if one.Attr.Type == unix.RTA_DST {
			a.Addr, _ = netip.AddrFromSlice(one.Value)
		}
	}
	return a, a.Addr.IsValid() && int(info.Dst_len) == a.Addr.BitLen()
}

// WriteAnnounced adds and deletes announcements in the order given. The result is nil if all rows are
// applied, else it has one error per row, nil for those that are. An address to which the table has a
// route of another program is ErrExist, because that route is neither taken over nor deleted.
func (h *Handle) WriteAnnounced(ctx context.Context, changes []AnnounceChange) []error {
	return h.settleAnnounced(ctx, changes, sendRoutes(ctx, h, changes))
}

// settleAnnounced turns "already so" into success, names the row in what is left, counts, and returns
// nil if nothing failed.
func (h *Handle) settleAnnounced(ctx context.Context, changes []AnnounceChange, errs []error) []error {
	known := map[uint32]map[Announcement]struct{}{}
	for i, c := range changes {
		switch {
		case c.Op == Delete && (errors.Is(errs[i], unix.ESRCH) || errors.Is(errs[i], ErrNotExist)):
			errs[i] = nil
		case c.Op == Add && errors.Is(errs[i], unix.EEXIST):
			errs[i] = h.isOurAnnouncement(ctx, c.Announcement, known)
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s: %w", c, errs[i])
		}
	}
	return h.tally(errs)
}

// isOurAnnouncement returns nil if the route that is there is ours. Each table is read once.
func (h *Handle) isOurAnnouncement(ctx context.Context, a Announcement, known map[uint32]map[Announcement]struct{}) error {
	ours, read := known[a.Table]
	if !read {
		var err error
		if ours, err = h.ListAnnounced(ctx, a.Table); err != nil {
			return err
		}
		known[a.Table] = ours
	}
	if _, there := ours[a]; !there {
		return fmt.Errorf("a route of another program to it %w", ErrExist)
	}
	return nil
}

func (c AnnounceChange) deleted() any { return deletedBy(c.Op, c.Announcement) }

// request adds or deletes an announcement. A deletion has the protocol, so that it never
// deletes a route of another program (fib_table_delete, ip6_route_del).
func (c AnnounceChange) request() *nl.NetlinkRequest {
	kind, flags := unix.RTM_DELROUTE, 0
	if c.Op == Add {
		kind, flags = unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	info := &nl.RtMsg{RtMsg: unix.RtMsg{
		Family: uint8(familyOf(c.Addr)), Dst_len: uint8(c.Addr.BitLen()), Protocol: RouteProtocol, Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_BLACKHOLE,
	}}
	return request(kind, flags, info, nl.NewRtAttr(unix.RTA_DST, c.Addr.AsSlice()), nl.NewRtAttr(unix.RTA_TABLE, nl.Uint32Attr(c.Table)))
}

// RulesTo returns the priorities of the rules of both families that have packets follow the routes of
// a table.
func (h *Handle) RulesTo(ctx context.Context, table uint32) ([]uint32, error) {
	var out []uint32
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := steady(ctx, h, func(c *conn) (found []uint32, err error) {
			dump := request(unix.RTM_GETRULE, unix.NLM_F_DUMP, &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
			err = c.query(dump, func(m syscall.NetlinkMessage) {
				if priority, ok := ruleTo(m, table); ok {
					found = append(found, priority)
				}
			})
			return found, err
		})
		if errors.Is(err, ErrUnsupported) {
			continue // a kernel with one table for all has no rules (CONFIG_IP_MULTIPLE_TABLES)
		}
		if err != nil {
			return nil, fmt.Errorf("list rules to table %d: %w", table, err)
		}
		out = append(out, list...)
	}
	return out, nil
}

// ruleTo reads the priority of a rule that leads to a table.
func ruleTo(m syscall.NetlinkMessage, to uint32) (priority uint32, ok bool) {
	if m.Header.Type != unix.RTM_NEWRULE || len(m.Data) < unix.SizeofRtMsg {
		return 0, false
	}
	attrs, err := parseAttrs(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return 0, false
	}
	leads := uint32(nl.DeserializeRtMsg(m.Data).Table) == to
	for _, a := range attrs {
		if len(a.Value) < 4 {
			continue
		}
		switch value := nl.NativeEndian().Uint32(a.Value); a.Attr.Type {
		case nl.FRA_TABLE:
			leads = value == to
		case nl.FRA_PRIORITY:
			priority = value
		}
	}
	return priority, leads
}
