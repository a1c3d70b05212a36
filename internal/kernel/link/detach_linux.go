package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// toTable is the action of a rule that has a table looked at (FR_ACT_TO_TBL,
// include/uapi/linux/fib_rules.h).
const toTable = 1

// detachment has the existing routes and rules of detached addresses.
type detachment struct {
	// routes are those of our table, attached the addresses that are local for everybody.
	routes, attached map[netip.Addr]struct{}
	// rules are those that lead to our table.
	rules []tableRule
}

// tableRule has the packets with a mark look at our table.
type tableRule struct {
	family     int
	mark, mask uint32
}

// familyOf is the address family of rtnetlink.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// ListDetached returns the addresses that are detached. False: something of it is missing,
// so that the address is local for all packets, or for none.
func (h *Handle) ListDetached(ctx context.Context) (map[netip.Addr]bool, error) {
	d, err := detacher{h}.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("list detached addresses: %w", err)
	}
	out := make(map[netip.Addr]bool, len(d.routes))
	for a := range d.routes {
		_, attached := d.attached[a]
		out[a] = !attached && slices.Contains(d.rules, detacher{h}.rule(familyOf(a)))
	}
	return out, nil
}

// detacher reads and writes the routes and rules of detached addresses.
type detacher struct{ *Handle }

// rule returns our rule of a family.
func (t detacher) rule(family int) tableRule {
	return tableRule{family, t.opts.DetachMark, t.opts.DetachMark}
}

func (t detacher) read(ctx context.Context) (detachment, error) {
	d := detachment{routes: map[netip.Addr]struct{}{}, attached: map[netip.Addr]struct{}{}}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if err := t.readFamily(ctx, family, &d); err != nil {
			return d, err
		}
	}
	return d, nil
}

func (t detacher) readFamily(ctx context.Context, family int, d *detachment) error {
	found, err := steady(ctx, t.Handle, func(c *conn) (found []hostRoute, err error) {
		keep := func(m syscall.NetlinkMessage) {
			if r, ok := parseHostRoute(m); ok {
				found = append(found, r)
			}
		}
		err = c.routes(family, DetachedTable, unix.RTN_LOCAL, keep)
		if err == nil && len(found) > 0 && family == unix.AF_INET { // without a route of ours nothing is detached
			err = c.routes(family, unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, keep)
		}
		return found, err
	})
	if err != nil {
		return err
	}
	for _, r := range found {
		switch {
		case r.ours:
			d.routes[r.to] = struct{}{}
		case family == unix.AF_INET:
			d.attached[r.to] = struct{}{}
		}
	}
	list, err := t.tableRules(ctx, family)
	d.rules = append(d.rules, list...)
	return err
}

// tableRules returns the rules of a family that lead to our table.
func (t detacher) tableRules(ctx context.Context, family int) ([]tableRule, error) {
	list, err := steady(ctx, t.Handle, func(c *conn) (found []tableRule, err error) {
		dump := request(unix.RTM_GETRULE, unix.NLM_F_DUMP, &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
		err = c.query(dump, func(m syscall.NetlinkMessage) {
			if r, ok := ourRule(m); ok {
				found = append(found, r)
			}
		})
		return found, err
	})
	if errors.Is(err, ErrUnsupported) {
		err = nil // a kernel with one table for all has no rules (CONFIG_IP_MULTIPLE_TABLES)
	}
	return list, err
}

// hostRoute is a local route to one address: ours in our table, or any in the one that
// all packets look at.
type hostRoute struct {
	to   netip.Addr
	ours bool
}

func parseHostRoute(m syscall.NetlinkMessage) (r hostRoute, ok bool) {
	if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg {
		return r, false
	}
	info := nl.DeserializeRtMsg(m.Data)
	if info.Type != unix.RTN_LOCAL || info.Flags&unix.RTM_F_CLONED != 0 {
		return r, false
	}
	attrs, err := parseAttrs(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return r, false
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.RTA_DST {
			r.to, _ = netip.AddrFromSlice(a.Value)
		}
	}
	if int(info.Dst_len) != r.to.BitLen() {
		return r, false
	}
	switch t := table(info, attrs); {
	case t == DetachedTable && info.Protocol == RouteProtocol:
		r.ours = true
	case t != unix.RT_TABLE_LOCAL:
		return r, false
	}
	return r, r.to.IsValid()
}

// ourRule reads the mark of a rule that leads to our table.
func ourRule(m syscall.NetlinkMessage) (tableRule, bool) {
	if m.Header.Type != unix.RTM_NEWRULE || len(m.Data) < unix.SizeofRtMsg {
		return tableRule{}, false
	}
	attrs, err := parseAttrs(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return tableRule{}, false
	}
	r := tableRule{family: int(nl.DeserializeRtMsg(m.Data).Family)}
	ours := false
	for _, a := range attrs {
		if len(a.Value) < 4 {
			continue
		}
		switch value := nl.NativeEndian().Uint32(a.Value); a.Attr.Type {
		case nl.FRA_TABLE:
			ours = value == DetachedTable
		case nl.FRA_FWMARK:
			r.mark = value
		case nl.FRA_FWMASK:
			r.mask = value
		}
	}
	return r, ours
}

// WriteDetached detaches addresses, bound or not, and makes those local for all packets again
// that are not to be detached any more and still bound. The result is nil if all rows are applied, else it has one
// error per row, nil for those that are. Without the link, additions have ErrNotExist.
func (h *Handle) WriteDetached(ctx context.Context, changes []Change) []error {
	errs := make([]error, len(changes))
	var add, del []int
	for i, c := range changes {
		switch errs[i] = c.Check(); {
		case errs[i] != nil:
		case c.Op == Add:
			add = append(add, i)
		default:
			del = append(del, i)
		}
	}
	if len(del) > 0 {
		detacher{h}.attach(ctx, changes, del, errs)
	}
	if len(add) > 0 {
		detacher{h}.detach(ctx, changes, add, errs)
	}
	return h.settleDetached(changes, errs)
}

// detach has the route that replaces another in place before that goes.
func (t detacher) detach(ctx context.Context, changes []Change, rows []int, errs []error) {
	d, err := t.ours(ctx)
	if err == nil {
		rows = t.forEach(ctx, changes, rows, errs, unix.EEXIST, func(a netip.Addr) *nl.NetlinkRequest { return detachedRoute(a, true) })
		err = t.rules(ctx, changes, rows)
	}
	if err != nil {
		spread(rows, errs, err)
		return
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(i int) bool { return changes[i].Addr.Is6() })
	t.forEach(ctx, changes, rows, errs, unix.ESRCH, func(a netip.Addr) *nl.NetlinkRequest { return attachedRoute(a, d.index, false) })
}

// attach deletes the rule before the last route, because the routes show that there is something of
// ours.
func (t detacher) attach(ctx context.Context, changes []Change, rows []int, errs []error) {
	found, err := t.read(ctx)
	if err == nil {
		rows, err = t.restore(ctx, changes, rows, errs)
	}
	for _, i := range rows {
		delete(found.routes, changes[i].Addr)
	}
	if err == nil {
		err = t.dropRules(ctx, slices.DeleteFunc(found.rules, func(r tableRule) bool { return found.leadsTo(r.family) }))
	}
	if err != nil {
		spread(rows, errs, err)
		return
	}
	t.forEach(ctx, changes, rows, errs, unix.ESRCH, func(a netip.Addr) *nl.NetlinkRequest { return detachedRoute(a, false) })
}

// leadsTo reports whether our table has a route of the family.
func (d detachment) leadsTo(family int) bool {
	for a := range d.routes {
		if familyOf(a) == family {
			return true
		}
	}
	return false
}

// restore makes those IPv4 addresses local for all packets that are bound.
func (t detacher) restore(ctx context.Context, changes []Change, rows []int, errs []error) ([]int, error) {
	d, err := t.ours(ctx)
	if errors.Is(err, ErrNotExist) {
		return rows, nil
	}
	if err != nil {
		return rows, err
	}
	bound, err := t.List(ctx)
	if err != nil {
		return rows, err
	}
	var here []int
	for _, i := range rows {
		if _, is := bound[changes[i].Addr]; is && changes[i].Addr.Is4() {
			here = append(here, i)
		}
	}
	t.forEach(ctx, changes, here, errs, unix.EEXIST, func(a netip.Addr) *nl.NetlinkRequest { return attachedRoute(a, d.index, true) })
	return slices.DeleteFunc(slices.Clone(rows), func(i int) bool { return errs[i] != nil }), nil
}

// rules makes sure that marked packets of the rows' families look at our table, and those
// with another mark that was ours do not.
func (t detacher) rules(ctx context.Context, changes []Change, rows []int) error {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if !slices.ContainsFunc(rows, func(i int) bool { return familyOf(changes[i].Addr) == family }) {
			continue
		}
		found, err := t.tableRules(ctx, family)
		if err != nil {
			return err
		}
		want := t.rule(family)
		if !slices.Contains(found, want) {
			if err := t.one(ctx, changeRule(want, true)); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("add rule to table %d: %w", DetachedTable, err)
			}
		}
		if err := t.dropRules(ctx, slices.DeleteFunc(found, func(r tableRule) bool { return r == want })); err != nil {
			return err
		}
	}
	return nil
}

func (t detacher) dropRules(ctx context.Context, list []tableRule) error {
	for _, r := range list {
		if err := t.one(ctx, changeRule(r, false)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, ErrNotExist) {
			return fmt.Errorf("delete rule to table %d: %w", DetachedTable, err)
		}
	}
	return nil
}

// forEach sends one request for each row and returns those that succeeded. One error reports
// that it is so already.
func (t detacher) forEach(ctx context.Context, changes []Change, rows []int, errs []error, already error, of func(netip.Addr) *nl.NetlinkRequest) []int {
	reqs := make([]*nl.NetlinkRequest, len(rows))
	for n, i := range rows {
		reqs[n] = of(changes[i].Addr)
	}
	if len(reqs) == 0 {
		return nil
	}
	answers, err := t.batch(ctx, reqs...)
	if err != nil {
		spread(rows, errs, err)
		return nil
	}
	var good []int
	for n, i := range rows {
		if errs[i] = answers[n]; errors.Is(errs[i], already) {
			errs[i] = nil
		}
		if errs[i] == nil {
			good = append(good, i)
		}
	}
	return good
}

// spread gives rows the error of what was done for all of them.
func spread(rows []int, errs []error, err error) {
	for _, i := range rows {
		errs[i] = err
	}
}

// settleDetached names the row in what failed, counts, and returns nil if nothing did.
func (h *Handle) settleDetached(changes []Change, errs []error) []error {
	for i, c := range changes {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s to those detached: %w", c, errs[i])
		}
	}
	return h.tally(errs)
}

func detachedRoute(a netip.Addr, add bool) *nl.NetlinkRequest {
	return localRoute(a, add, unix.RtMsg{Protocol: RouteProtocol},
		nl.NewRtAttr(unix.RTA_TABLE, nl.Uint32Attr(DetachedTable)), nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(loopback)))
}

// attachedRoute is the one that the kernel makes for an address itself (fib_add_ifaddr in
// net/ipv4/fib_frontend.c).
func attachedRoute(a netip.Addr, index uint32, add bool) *nl.NetlinkRequest {
	return localRoute(a, add, unix.RtMsg{Protocol: unix.RTPROT_KERNEL, Table: unix.RT_TABLE_LOCAL},
		nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(index)), nl.NewRtAttr(unix.RTA_PREFSRC, a.AsSlice()))
}

func localRoute(a netip.Addr, add bool, info unix.RtMsg, more ...nl.NetlinkRequestData) *nl.NetlinkRequest {
	kind, flags := unix.RTM_DELROUTE, 0
	if add {
		kind, flags = unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	info.Family, info.Dst_len, info.Scope, info.Type = uint8(familyOf(a)), uint8(a.BitLen()), unix.RT_SCOPE_HOST, unix.RTN_LOCAL
	return request(kind, flags, append([]nl.NetlinkRequestData{&nl.RtMsg{RtMsg: info}, nl.NewRtAttr(unix.RTA_DST, a.AsSlice())}, more...)...)
}

// changeRule adds or deletes a rule that leads to our table.
func changeRule(r tableRule, add bool) *nl.NetlinkRequest {
	kind, flags := unix.RTM_DELRULE, 0
	if add {
		kind, flags = unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	info := &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(r.family), Type: toTable}}
	parts := []nl.NetlinkRequestData{info, nl.NewRtAttr(nl.FRA_TABLE, nl.Uint32Attr(DetachedTable)),
		nl.NewRtAttr(nl.FRA_FWMARK, nl.Uint32Attr(r.mark)), nl.NewRtAttr(nl.FRA_FWMASK, nl.Uint32Attr(r.mask))}
	if add {
		parts = append(parts, nl.NewRtAttr(nl.FRA_PRIORITY, nl.Uint32Attr(detachedPriority)), nl.NewRtAttr(nl.FRA_PROTOCOL, nl.Uint8Attr(RouteProtocol)))
	}
	return request(kind, flags, parts...)
}
