package link

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const watchGroups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE

// Watch tells what others do to our link, to the node's own addresses and default routes, until the
// context ends or the handle is closed; then it returns nil. The first event is Ready, after which
// nothing is missed. Changes that this handle wrote itself are not reported. The function runs on
// the goroutine of Watch and should return soon.
//
// One watch at a time: a second one is ErrBusy. Any other error means that the
// kernel could not be listened to, and the call may be repeated.
func (h *Handle) Watch(ctx context.Context, tell func(Event)) error {
	if !h.watching.CompareAndSwap(false, true) {
		return fmt.Errorf("watch link %s twice: %w", h.opts.Name, ErrBusy)
	}
	defer h.watching.Store(false)
	defer h.ownEvents.reset(false)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.alive, cancel)()

	first := Ready
	for {
		err := h.watchOnce(ctx, first, tell)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("watch link %s: %w", h.opts.Name, err)
		}
		h.count.overruns.Add(1)
		h.log.Warn("address events lost, reading again", zap.String("link", h.opts.Name), zap.Error(err))
		first = Overrun
	}
}

// watchOnce subscribes, reports the first event and continues until the socket fails or the context
// ends.
func (h *Handle) watchOnce(ctx context.Context, first Kind, tell func(Event)) error {
	c, err := h.ns.dial(h.opts.watchBuffer, watchGroups)
	if err != nil {
		return err
	}
	defer c.close()
	h.filter(c, 0)
	h.defaults.changed(true)
	defer h.defaults.changed(false)
	defer context.AfterFunc(ctx, c.interrupt)()
	h.ownEvents.reset(true)
	w := watch{name: h.opts.Name, ownEvents: &h.ownEvents, defaults: &h.defaults}
	// Only now, so that a link made in between is seen in one way or the other.
	d, err := h.device(ctx, linkByName(h.opts.Name))
	if err != nil && !errors.Is(err, ErrNotExist) {
		return err
	}
	w.index = d.index
	tell(Event{Kind: first})
	for passed := uint32(0); ; {
		if passed != w.index {
			passed = w.index
			h.filter(c, passed)
		}
		err := c.receive(func(m syscall.NetlinkMessage) {
			h.count.events.Add(1)
			if e, ok := w.read(m); ok {
				tell(e)
			}
		})
		if err != nil {
			return err
		}
	}
}

func (h *Handle) filter(c *conn, index uint32) {
	if err := c.passOver(index); err != nil {
		h.log.Debug("cannot filter events in the kernel, all events of links, addresses and routes are read", zap.Error(err)) // a kernel without filters
	}
}

// watch turns messages into events. Only one goroutine uses it.
type watch struct {
	name      string
	ownEvents *ownEvents
	defaults  *defaultRoutes
	index     uint32 // index of our link; 0 while there is none
}

func (w *watch) read(m syscall.NetlinkMessage) (Event, bool) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if d, ok := parseLink(m); ok {
			return w.link(d, m.Header.Type == unix.RTM_DELLINK)
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if a, ok := parseAddr(m); ok {
			return w.address(a, m.Header.Type == unix.RTM_DELADDR)
		}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if p, ok := ourRoute(m); ok {
			return Event{Kind: OurRouteLost, Route: p}, m.Header.Type == unix.RTM_DELROUTE && !w.ownEvents.consume(p)
		}
		if a, ok := ourAnnouncement(m); ok {
			return Event{Kind: OurAnnouncementLost, Announced: a}, m.Header.Type == unix.RTM_DELROUTE && !w.ownEvents.consume(a)
		}
		if isDefaultRoute(m) {
			w.defaults.changed(true)
			return Event{Kind: DefaultRoutesChanged}, true
		}
	}
	return Event{}, false
}

// link follows our link by name: it may be deleted, renamed, and created again.
func (w *watch) link(d device, deleted bool) (Event, bool) {
	if !deleted && d.name == w.name {
		w.index = d.index
		return Event{}, false
	}
	if d.index != w.index {
		return Event{}, false
	}
	w.index = 0
	return Event{Kind: OurLinkLost}, !w.ownEvents.removal(d.index)
}

func (w *watch) address(a address, deleted bool) (Event, bool) {
	switch {
	case !usable(a.addr):
		return Event{}, false
	case a.index != w.index:
		return Event{Kind: NodeAddressesChanged, Addr: a.addr}, !w.ownEvents.removal(a.index)
	case !deleted || !a.host || w.ownEvents.removal(a.index):
		return Event{}, false
	}
	return Event{Kind: OurAddressLost, Addr: a.addr}, !w.ownEvents.consume(a.addr)
}
