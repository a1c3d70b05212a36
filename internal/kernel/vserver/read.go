package vserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"syscall"
)

// ListServers reads all virtual servers that have an address. Those chosen by
// firewall mark are left out: they are foreign here.
func (h *Handle) ListServers(ctx context.Context) (map[ServerKey]Server, error) {
	request := func(b *buffer) { b.unnest(b.nest(attrServer)) }
	servers, err := dump(ctx, h, cmdGetServer, request, decodeServer)
	if err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	h.servers = len(servers)
	return servers, nil
}

// ListDestinations reads the destinations of one server. The kernel does not
// say whether the server exists: a missing one has none.
func (h *Handle) ListDestinations(ctx context.Context, server ServerKey) (map[DestinationKey]Destination, error) {
	request := func(b *buffer) { b.server(server) }
	decode := func(body []byte) (DestinationKey, Destination, bool, error) {
		k, d, err := decodeDestination(server, body)
		return k, d, true, err
	}
	err := checkAddr(server.Addr)
	if err == nil {
		var destinations map[DestinationKey]Destination
		if destinations, err = dump(ctx, h, cmdGetDestination, request, decode); err == nil {
			return destinations, nil
		}
	}
	return nil, fmt.Errorf("list destinations of %s: %w", server, err)
}

// List reads everything: one dump for the servers and one for the destinations
// of each. It is meant for the start; use GetServers for checks later on.
func (h *Handle) List(ctx context.Context) (map[ServerKey]Server, map[DestinationKey]Destination, error) {
	servers, err := h.ListServers(ctx)
	if err != nil {
		return nil, nil, err
	}
	all := make(map[DestinationKey]Destination, len(servers))
	for key := range servers {
		destinations, err := h.ListDestinations(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(all, destinations)
	}
	return servers, all, nil
}

// GetServer reads one server, or fails with ErrNotExist.
func (h *Handle) GetServer(ctx context.Context, key ServerKey) (Server, error) {
	servers, err := h.GetServers(ctx, []ServerKey{key})
	if err != nil {
		return Server{}, err
	}
	s, ok := servers[key]
	if !ok {
		return Server{}, fmt.Errorf("get server %s: %w", key, ErrNotExist)
	}
	return s, nil
}

// readRows is how many single reads share a system call: each answer takes a
// datagram of its own in the receive buffer.
const readRows = 64

// GetServers reads the servers of the given keys, many to a system call. Those
// that do not exist are missing from the result. The cost does not depend on
// the size of the table, unlike a dump's.
func (h *Handle) GetServers(ctx context.Context, keys []ServerKey) (map[ServerKey]Server, error) {
	found := make(map[ServerKey]Server, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), readRows)
		if err := h.getServers(ctx, keys[:n], found); err != nil {
			return nil, err
		}
		keys = keys[n:]
	}
	return found, nil
}

func (h *Handle) getServers(ctx context.Context, keys []ServerKey, found map[ServerKey]Server) error {
	if err := h.ready(ctx); err != nil {
		return fmt.Errorf("get server %s: %w", keys[0], err)
	}
	var c chunk
	for _, key := range keys {
		if err := checkAddr(key.Addr); err != nil {
			return fmt.Errorf("get server %s: %w", key, err)
		}
		mark := h.begin(&c, cmdGetServer)
		h.out.server(key)
		h.out.end(mark)
	}
	answers, err := h.exchange(ctx, c, func(i int, m message) error {
		return readServer(m, keys[i], found)
	})
	if err != nil {
		return fmt.Errorf("get server %s and %d more: %w", keys[0], len(keys)-1, err)
	}
	for i, a := range answers {
		if a.errno != 0 && a.errno != syscall.ESRCH {
			return fmt.Errorf("get server %s: %w", keys[i], h.readFault(a))
		}
	}
	return nil
}

// readServer checks that the kernel answered with the server that was asked for.
func readServer(m message, asked ServerKey, found map[ServerKey]Server) error {
	body, err := m.attributes()
	if err != nil {
		return err
	}
	key, s, mine, err := decodeServer(body)
	if err != nil {
		return err
	}
	if !mine || key != asked {
		return fmt.Errorf("%w: server %s for %s", errMalformed, key, asked)
	}
	found[key] = s
	return nil
}

// dump reads a table whole. One that the kernel marks as interrupted, or that
// shows a key twice because rows moved meanwhile, is read again.
func dump[K comparable, V any](
	ctx context.Context, h *Handle, cmd uint8,
	request func(*buffer), decode func([]byte) (K, V, bool, error),
) (map[K]V, error) {
	for attempt := 1; ; attempt++ {
		rows := make(map[K]V)
		add := func(body []byte) (clash bool, err error) {
			key, value, mine, err := decode(body)
			if err == nil && mine {
				_, clash = rows[key]
				rows[key] = value
			}
			return clash, err
		}
		err := h.dumpOnce(ctx, cmd, request, add)
		if err == nil {
			return rows, nil
		}
		if !errors.Is(err, ErrInterrupted) || attempt == h.opts.DumpAttempts {
			return nil, err
		}
	}
}

// dumpOnce drives one dump to its end, also when it is known to be worthless:
// the kernel refuses a second dump on a socket with an unfinished one.
func (h *Handle) dumpOnce(ctx context.Context, cmd uint8, request func(*buffer), add func([]byte) (bool, error)) error {
	if err := h.ready(ctx); err != nil {
		return err
	}
	var c chunk
	mark := h.begin(&c, cmd)
	h.out.setFlag(mark, nlDump)
	request(&h.out)
	h.out.end(mark)
	h.count.Dumps++
	interrupted := false
	err := h.transact(ctx, 1, c.first, func(m message) (bool, error) {
		end, moved, err := h.dumped(m, add)
		interrupted = interrupted || moved
		return end, err
	})
	if err != nil {
		return err
	}
	if interrupted {
		return ErrInterrupted
	}
	return nil
}

// dumped takes one message of a dump.
func (h *Handle) dumped(m message, add func([]byte) (bool, error)) (end, moved bool, err error) {
	moved = m.flags&nlIntr != 0
	if m.kind == nlError || m.kind == nlDone {
		err = h.dumpStatus(m)
		return err == nil, moved, err
	}
	body, err := m.attributes()
	if err == nil {
		var clash bool
		clash, err = add(body)
		moved = moved || clash
	}
	return false, moved, err
}

func (h *Handle) dumpStatus(m message) error {
	a, err := m.answer()
	switch {
	case err != nil:
		return err
	case a.errno != 0:
		return h.readFault(a)
	default:
		return nil
	}
}

// readFault keeps a vanished family apart from a missing row: a failed read
// never means that something is absent.
func (h *Handle) readFault(a answer) error {
	if a.errno != syscall.ENOENT {
		return a.fault()
	}
	h.doubtFamily(a.errno)
	return fmt.Errorf("family %s: %w (%s)", familyName, ErrUnsupported, a.errno.Error())
}
