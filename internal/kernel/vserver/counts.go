package vserver

import (
	"context"
	"fmt"
)

// Connections is how many connections of one destination the kernel remembers:
// the columns ActiveConn and InActConn of ipvsadm.
type Connections struct {
	Active uint32 // established
	// Inactive are all others: being opened, being closed, and closed ones until
	// the kernel forgets them (TCP two minutes). Of UDP all are inactive.
	Inactive uint32
}

// Idle tells that the kernel remembers no connection of the destination.
func (c Connections) Idle() bool { return c == Connections{} }

// CountConnections reads the counts of the wanted destinations: those of few
// servers with a dump for each, all others from one read of the kernel's list. One that is not in the result was not seen, which
// does not say that it is gone: the table may change while it is read. One that
// was seen twice, for that reason or because older kernels list the servers of
// other network namespaces too, is as busy as its busiest row.
//
// The list passes servers over where another network namespace has some too: until
// the table of each namespace became its own, the kernel counted those on the way
// down the list, but not when it took the list up again for the next piece
// (ip_vs_info_seq_next, ip_vs_info_array). So what the list lacks is asked for over
// netlink, with a dump for each server.
//
// A list that cannot be understood to its end is an error.
func (h *Handle) CountConnections(ctx context.Context, wanted map[DestinationKey]struct{}) (map[DestinationKey]Connections, error) {
	list := newCountList(wanted)
	if len(wanted) == 0 {
		return list.found, nil
	}
	var err error
	if len(list.servers) > max(fewServers, h.listed/askShare) {
		err = h.readCounts(ctx, list)
	}
	if err == nil {
		err = h.askForCounts(ctx, list)
	}
	if err != nil {
		return nil, fmt.Errorf("count connections of %d destinations: %w", len(wanted), err)
	}
	return list.found, nil
}

// A dump of one server costs as much as some of the rows of the list, which costs all of
// its rows: fewServers is always asked for one by one, and so is one in askShare of the
// servers that the list had when it was read last.
const (
	fewServers = 4
	askShare   = 8
)

// askForCounts fills in what the list lacks.
func (h *Handle) askForCounts(ctx context.Context, list *countList) error {
	for server := range list.lacking() {
		request := func(b *buffer) { b.server(server) }
		decode := func(body []byte) (DestinationKey, Connections, bool, error) {
			k, c, err := decodeConnections(server, body)
			return k, c, true, err
		}
		counts, err := dump(ctx, h, cmdGetDestination, request, decode)
		if err != nil {
			return fmt.Errorf("list destinations of %s: %w", server, err)
		}
		for k, c := range counts {
			list.add(k, c)
		}
	}
	return nil
}

func (h *Handle) readCounts(ctx context.Context, counts *countList) error {
	file, err := h.openList(ctx)
	if err != nil {
		return err
	}
	defer letGo(file)
	h.count.Dumps++
	l := list{rows: counts, buf: make([]byte, listBuffer)}
	if err := l.read(h.fill(ctx, file)); err != nil {
		return err
	}
	h.listed = l.servers
	return nil
}
