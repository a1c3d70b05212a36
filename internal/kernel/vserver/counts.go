package vserver

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Connections is how many connections of one destination the kernel keeps:
// the columns ActiveConn and InActConn of ipvsadm.
type Connections struct {
	Active uint32 // established
	// Inactive are all others: being opened, being closed, and closed ones until
	// the kernel drops them (TCP two minutes). Of UDP all are inactive.
	Inactive uint32
}

// Idle reports whether the kernel keeps no connection of the destination.
func (c Connections) Idle() bool { return c == Connections{} }

// Counting is a count of connections, made in pieces so that other calls can run in between.
type Counting interface {
	// Next reads the next piece. With the last it returns the counts of the destinations that were
	// seen. One that was not need not be gone: the table may change while it is read. After an
	// error the counting is over.
	Next(ctx context.Context) (found map[DestinationKey]Connections, done bool, err error)
}

// Count begins to count the connections of the wanted destinations. Some may be taken out of them
// until the end, and none put in. Those of few servers are read with a dump for each, all others
// from the kernel's list. A destination may be seen twice, because the table changed or because
// older kernels list servers of other network namespaces, too; its highest count is used.
//
// The list skips servers if another network namespace also has some. Before each namespace had its
// own table, the kernel counted those on the way through the list, but not when it resumed the list
// for the next piece (ip_vs_info_seq_next, ip_vs_info_array). So what the list lacks is asked for
// over netlink, with a dump for each server. A list that cannot be understood to its end is an
// error.
func (h *Handle) Count(wanted map[DestinationKey]struct{}) Counting {
	c := &counting{h: h, counts: newCountList(wanted)}
	c.listing = len(c.counts.servers) > max(fewServers, h.servers/askShare)
	return c
}

const (
	// A dump of one server costs as much as about ten servers of the list, and the list has all
	// servers. So up to fewServers are always dumped one by one, and more only up to one in
	// askShare of all servers (BenchmarkCount).
	fewServers = 4
	askShare   = 10
	// asksAPiece is how many servers one piece asks for: 5 ms on an emulated kernel.
	asksAPiece = 8
	// countBuffer is how much of the list one piece reads: 10 ms on an emulated kernel.
	countBuffer = 16 << 10
)

// counting is the Counting of a Handle.
type counting struct {
	h       *Handle
	counts  *countList
	listing bool // the list is to be read, or is being read
	list    list
	file    io.ReadCloser // nil before the list is open
	lacking []ServerKey   // to be asked for, once the list was read
	asking  bool
}

// Next implements Counting.
func (c *counting) Next(ctx context.Context) (found map[DestinationKey]Connections, done bool, err error) {
	if c.listing {
		err = c.read(ctx)
	} else {
		done, err = c.ask(ctx)
	}
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("count connections of %d destinations: %w", len(c.counts.wanted), err)
	case done:
		return c.counts.found, true, nil
	}
	return nil, false, nil
}

// read continues with the list.
func (c *counting) read(ctx context.Context) (err error) {
	if c.file == nil {
		if c.file, err = c.h.openList(ctx); err != nil {
			c.file = nil
			return err
		}
		c.h.count.Dumps++
		c.list = list{rows: c.counts, buf: make([]byte, countBuffer)}
	}
	end, err := c.list.piece(c.h.fill(ctx, c.file))
	if end || err != nil {
		letGo(c.file)
		c.listing = false
	}
	if end {
		c.h.servers = c.list.servers
	}
	return err
}

// ask fills in what the list lacks, some servers at a time.
func (c *counting) ask(ctx context.Context) (done bool, err error) {
	if !c.asking {
		c.asking, c.lacking = true, slices.Collect(maps.Keys(c.counts.lacking()))
	}
	n := min(asksAPiece, len(c.lacking))
	for _, server := range c.lacking[:n] {
		if err := c.askFor(ctx, server); err != nil {
			return false, fmt.Errorf("list destinations of %s: %w", server, err)
		}
	}
	c.lacking = c.lacking[n:]
	return len(c.lacking) == 0, nil
}

func (c *counting) askFor(ctx context.Context, server ServerKey) error {
	request := func(b *buffer) { b.server(server) }
	decode := func(body []byte) (DestinationKey, Connections, bool, error) {
		k, one, err := decodeConnections(server, body)
		return k, one, true, err
	}
	counts, err := dump(ctx, c.h, cmdGetDestination, request, decode)
	for k, one := range counts {
		c.counts.add(k, one)
	}
	return err
}
