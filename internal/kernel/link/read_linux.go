package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"
)

// dumpAttempts bounds the reading of a list that changes all the time; the pause
// before the next attempt doubles from dumpPause.
const (
	dumpAttempts = 6
	dumpPause    = 2 * time.Millisecond
)

// List returns the addresses of our link that Write could have put there: host
// prefixes, no loopback, no IPv6 link-local. A link that is not there is
// ErrNotExist, said by the kernel; after any other error nothing is known.
func (h *Handle) List(ctx context.Context) (map[netip.Addr]struct{}, error) {
	d, err := h.ours(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := h.dump(ctx)
	if err != nil {
		return nil, fmt.Errorf("list addresses of link %s: %w", h.opts.Name, err)
	}
	addrs := map[netip.Addr]struct{}{}
	for _, a := range rows {
		if a.index == d.index && a.host && usable(a.addr) {
			addrs[a.addr] = struct{}{}
		}
	}
	return addrs, nil
}

// Local returns the addresses of all other links and the link of each: the ones
// this node answers on by itself. It is one dump and one look-up for every link
// that has such an address, so the many links of pods cost nothing.
func (h *Handle) Local(ctx context.Context) (map[netip.Addr]string, error) {
	rows, err := h.dump(ctx)
	if err != nil {
		return nil, fmt.Errorf("list local addresses: %w", err)
	}
	names := map[uint32]string{}
	local := map[netip.Addr]string{}
	for _, a := range rows {
		if !usable(a.addr) {
			continue
		}
		name, err := h.linkName(ctx, a.index, names)
		if err != nil {
			return nil, fmt.Errorf("find link of local address %s: %w", a.addr, err)
		}
		// One address on two links is listed under the first name, so that two
		// readings are equal.
		if old, taken := local[a.addr]; name != "" && name != h.opts.Name && (!taken || name < old) {
			local[a.addr] = name
		}
	}
	return local, nil
}

// linkName returns the name of a link, or none if it went away meanwhile.
func (h *Handle) linkName(ctx context.Context, index uint32, known map[uint32]string) (string, error) {
	if name, ok := known[index]; ok {
		return name, nil
	}
	d, err := h.device(ctx, linkByIndex(index))
	if err != nil && !errors.Is(err, ErrNotExist) {
		return "", err
	}
	known[index] = d.name
	return d.name, nil
}

// dump reads the addresses of all links.
func (h *Handle) dump(ctx context.Context) ([]address, error) {
	return steady(ctx, h, func(c *conn) (rows []address, err error) {
		err = c.query(dumpAddrs(), func(m syscall.NetlinkMessage) {
			if a, ok := parseAddr(m); ok {
				rows = append(rows, a)
			}
		})
		return rows, err
	})
}

// steady reads a list until the kernel gives a consistent answer.
func steady[T any](ctx context.Context, h *Handle, read func(*conn) ([]T, error)) ([]T, error) {
	pause := dumpPause
	for attempt := 1; ; attempt++ {
		rows, err := call(ctx, h, read)
		if err == nil {
			return rows, nil
		}
		if !errors.Is(err, ErrInterrupted) {
			return nil, err
		}
		h.count.interrupted.Add(1)
		if attempt == dumpAttempts {
			return nil, fmt.Errorf("%d attempts: %w", attempt, err)
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}
