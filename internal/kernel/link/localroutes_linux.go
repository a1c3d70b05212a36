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

// loopback is the index of the loopback link in every network namespace (LOOPBACK_IFINDEX,
// include/net/flow.h; loopback_net_init sees to it).
const loopback = 1

// ListRoutes returns the local routes that are ours, of both families. They are there
// whether our link is or not.
func (h *Handle) ListRoutes(ctx context.Context) (map[netip.Prefix]struct{}, error) {
	routes := map[netip.Prefix]struct{}{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rows, err := steady(ctx, h, func(c *conn) (rows []netip.Prefix, err error) {
			err = c.routes(family, unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, func(m syscall.NetlinkMessage) {
				if p, ok := ourRoute(m); ok && m.Header.Type == unix.RTM_NEWROUTE {
					rows = append(rows, p)
				}
			})
			return rows, err
		})
		if err != nil {
			return nil, fmt.Errorf("list local routes: %w", err)
		}
		for _, p := range rows {
			routes[p] = struct{}{}
		}
	}
	return routes, nil
}

// WriteRoutes adds and deletes local routes in the order given. The result is nil if all rows are
// applied, else it has one error per row, nil for those that are. A range that is local by a route
// of another program is ErrExist, because that route is neither taken over nor deleted.
func (h *Handle) WriteRoutes(ctx context.Context, changes []RouteChange) []error {
	return h.settleRoutes(ctx, changes, sendRoutes(ctx, h, changes))
}

// routeChange is a route of ours to add or to delete.
type routeChange interface {
	Check() error
	// deleted returns what the change deletes, as ownEvents has it, or nil.
	deleted() any
	request() *nl.NetlinkRequest
}

// sendRoutes sends a request for each row that can be written, in their order, and returns an error or
// nil for each row.
func sendRoutes[C routeChange](ctx context.Context, h *Handle, changes []C) []error {
	errs := make([]error, len(changes))
	rows := make([]int, 0, len(changes)) // request -> row; bad rows are not sent
	reqs := make([]*nl.NetlinkRequest, 0, len(changes))
	for i, c := range changes {
		if errs[i] = c.Check(); errs[i] == nil {
			rows, reqs = append(rows, i), append(reqs, c.request())
			h.ownEvents.expect(c.deleted())
		}
	}
	if len(reqs) == 0 {
		return errs
	}
	answers, err := h.batch(ctx, reqs...)
	for n, i := range rows {
		if errs[i] = err; err == nil {
			errs[i] = answers[n]
		}
		if errs[i] != nil {
			h.ownEvents.cancel(changes[i].deleted())
		}
	}
	return errs
}

// settleRoutes turns "already so" into success, names the row in what is left, counts,
// and returns nil if nothing failed.
func (h *Handle) settleRoutes(ctx context.Context, changes []RouteChange, errs []error) []error {
	for i, c := range changes {
		switch {
		case c.Op == Delete && errors.Is(errs[i], unix.ESRCH):
			errs[i] = nil
		case c.Op == Add && errors.Is(errs[i], unix.EEXIST):
			errs[i] = h.isOurs(ctx, c.Prefix)
		case c.Op == Add && c.Prefix.Addr().Is6() && errors.Is(errs[i], unix.EACCES):
			errs[i] = fmt.Errorf("IPv6 is disabled on lo: %w (%w)", ErrUnsupported, errs[i])
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s: %w", c, errs[i])
		}
	}
	return h.tally(errs)
}

// isOurs returns nil if the route that is there is ours: the kernel allows one for a range.
func (h *Handle) isOurs(ctx context.Context, p netip.Prefix) error {
	ours, err := h.ListRoutes(ctx)
	if err != nil {
		return err
	}
	if _, there := ours[p]; !there {
		return fmt.Errorf("by a route of another program it %w", ErrExist)
	}
	return nil
}

func (c RouteChange) deleted() any { return deletedBy(c.Op, c.Prefix) }

// request adds or deletes a local route. A deletion has all fields that the kernel compares,
// the protocol included, so that it never deletes a route of another program (fib_table_delete,
// ip6_route_del).
func (c RouteChange) request() *nl.NetlinkRequest {
	kind, flags := unix.RTM_DELROUTE, 0
	if c.Op == Add {
		kind, flags = unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	info := &nl.RtMsg{RtMsg: unix.RtMsg{
		Family: uint8(familyOf(c.Prefix.Addr())), Dst_len: uint8(c.Prefix.Bits()), Table: unix.RT_TABLE_LOCAL,
		Protocol: RouteProtocol, Scope: unix.RT_SCOPE_HOST, Type: unix.RTN_LOCAL,
	}}
	return request(kind, flags, info,
		nl.NewRtAttr(unix.RTA_DST, c.Prefix.Addr().AsSlice()), nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(loopback)))
}

// ourRoute returns the range of a local route that is ours.
func ourRoute(m syscall.NetlinkMessage) (netip.Prefix, bool) {
	if len(m.Data) < unix.SizeofRtMsg {
		return netip.Prefix{}, false
	}
	info := nl.DeserializeRtMsg(m.Data)
	inet := info.Family == unix.AF_INET || info.Family == unix.AF_INET6
	if !inet || info.Protocol != RouteProtocol || info.Type != unix.RTN_LOCAL || info.Flags&unix.RTM_F_CLONED != 0 {
		return netip.Prefix{}, false
	}
	attrs, err := parseAttrs(m.Data[unix.SizeofRtMsg:])
	if err != nil || table(info, attrs) != unix.RT_TABLE_LOCAL {
		return netip.Prefix{}, false
	}
	var to netip.Addr
	var out uint32
	for _, a := range attrs {
		switch {
		case a.Attr.Type == unix.RTA_DST:
			to, _ = netip.AddrFromSlice(a.Value)
		case a.Attr.Type == unix.RTA_OIF && len(a.Value) >= 4:
			out = nl.NativeEndian().Uint32(a.Value)
		}
	}
	p := netip.PrefixFrom(to, int(info.Dst_len))
	return p, p.IsValid() && out == loopback
}
