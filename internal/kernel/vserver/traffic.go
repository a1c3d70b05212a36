package vserver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// Traffic is what a server or a destination has carried since it was made; both directions are
// those of the packets, in from the client and out to it. The kernel sums the counters of its CPUs
// once in two seconds (ip_vs_est.c), so over a shorter interval they show no change or a double
// one. With the sysctl net.ipv4.vs.run_estimation at 0 they never change.
type Traffic struct {
	// Connections that were given a destination. Of one-packet scheduling each
	// datagram is one.
	Connections           uint64
	PacketsIn, PacketsOut uint64
	BytesIn, BytesOut     uint64
}

// ServerTraffic is a server with what it has carried.
type ServerTraffic struct {
	Scheduler string
	Traffic
}

// DestinationTraffic is a destination with what it has and has carried.
type DestinationTraffic struct {
	// Weight as in Destination.
	Weight uint16
	Connections
	Carried Traffic
}

// ListTraffic reads what all servers have carried, by one dump. Those chosen by
// firewall mark are left out.
//
// A dump costs some 350 bytes a server, and the kernel hands out about 100 of them a call. It
// resumes the dump by walking from the first server (ip_vs_genl_dump_services), so n servers take
// n²/200 steps. 10,000 servers take tens of milliseconds on recent kernels and 0.3 s on older ones;
// 44,000 take seconds. The lock that writers need is held for one call at a time. Callers keep the
// answer for a while.
//
// Before Linux 4.1 (cd67cd5eb25a, "ipvs: use 64-bit rates in stats") connections and packets only
// have counters of 32 bits, which wrap around.
func (h *Handle) ListTraffic(ctx context.Context) (map[ServerKey]ServerTraffic, error) {
	names := make(map[string]string)
	request := func(b *buffer) { b.unnest(b.nest(attrServer)) }
	decode := func(body []byte) (ServerKey, ServerTraffic, bool, error) { return decodeServerTraffic(body, names) }
	servers, err := dump(ctx, h, cmdGetServer, request, decode)
	if err != nil {
		return nil, fmt.Errorf("list traffic of servers: %w", err)
	}
	return servers, nil
}

// ListDestinationTraffic reads the destinations of one server with what each has
// carried, by one dump. A missing server has none.
func (h *Handle) ListDestinationTraffic(ctx context.Context, server ServerKey) (map[DestinationKey]DestinationTraffic, error) {
	request := func(b *buffer) { b.server(server) }
	decode := func(body []byte) (DestinationKey, DestinationTraffic, bool, error) {
		k, d, err := decodeDestinationTraffic(server, body)
		return k, d, true, err
	}
	err := checkAddr(server.Addr)
	if err == nil {
		var found map[DestinationKey]DestinationTraffic
		if found, err = dump(ctx, h, cmdGetDestination, request, decode); err == nil {
			return found, nil
		}
	}
	return nil, fmt.Errorf("list traffic of destinations of %s: %w", server, err)
}

// Load has the current connections of the destinations of one server.
type Load struct {
	Destinations int
	// Active and Inactive are the sums of Connections, MostActive the greatest
	// count of one destination.
	Active, Inactive uint64
	MostActive       uint32
	// Quiet are the destinations of weight 0, in the kernel's order.
	Quiet []netip.AddrPort
}

// ListLoads reads what all destinations have, by reading the kernel's list once.
// Where the list cannot be opened it fails with ErrUnsupported or
// fs.ErrPermission. Servers may be missing: the list passes some over while
// others come and go, or where another network namespace has some too (see
// Handle.Count). One that is listed twice is as busy as its busier row.
func (h *Handle) ListLoads(ctx context.Context) (map[ServerKey]Load, error) {
	loads := &loadList{found: make(map[ServerKey]Load, max(0, h.servers))}
	file, err := h.openList(ctx)
	if err == nil {
		defer letGo(file)
		h.count.Dumps++
		l := list{rows: loads, buf: make([]byte, listBuffer)}
		err = l.read(h.fill(ctx, file))
	}
	if err != nil {
		return nil, fmt.Errorf("list connections of servers: %w", err)
	}
	loads.close()
	return loads.found, nil
}

// loadList adds up the destinations of each server of the list.
type loadList struct {
	found map[ServerKey]Load
	key   ServerKey
	now   Load
	open  bool
}

func (l *loadList) server(s serverLine) error {
	l.close()
	l.key, l.open = s.key, s.mine
	return nil
}

func (l *loadList) destination(d destinationLine) error {
	if !l.open {
		return nil
	}
	l.now.Destinations++
	l.now.Active += uint64(d.count.Active)
	l.now.Inactive += uint64(d.count.Inactive)
	l.now.MostActive = max(l.now.MostActive, d.count.Active)
	if d.weight == 0 {
		l.now.Quiet = append(l.now.Quiet, netip.AddrPortFrom(d.addr, d.port))
	}
	return nil
}

func (l *loadList) close() {
	if was, twice := l.found[l.key]; l.open && (!twice || was.Active+was.Inactive < l.now.Active+l.now.Inactive) {
		l.found[l.key] = l.now
	}
	l.now, l.open = Load{}, false
}

// decodeServerTraffic reads one row of a server dump; each name of a scheduler is
// made once.
func decodeServerTraffic(body []byte, names map[string]string) (k ServerKey, s ServerTraffic, mine bool, err error) {
	f, err := nested(body, attrServer)
	if err != nil || f[serverMark] != nil {
		return k, s, false, err
	}
	k, errKey := f.serverKey()
	traffic, errTraffic := f.traffic(serverStats64, serverStats)
	if err := errors.Join(errKey, errTraffic); err != nil {
		return k, s, false, err
	}
	return k, ServerTraffic{Scheduler: onceNamed(names, f[serverScheduler]), Traffic: traffic}, true, nil
}

func onceNamed(names map[string]string, raw []byte) string {
	if name, ok := names[string(raw)]; ok {
		return name
	}
	name := cString(raw)
	names[string(raw)] = name
	return name
}

func decodeDestinationTraffic(server ServerKey, body []byte) (k DestinationKey, d DestinationTraffic, err error) {
	k, d.Connections, err = decodeConnections(server, body)
	if err != nil {
		return k, d, err
	}
	f, err := nested(body, attrDestination)
	if err != nil {
		return k, d, err
	}
	row, errRow := f.destination()
	traffic, errTraffic := f.traffic(destStats64, destStats)
	d.Weight, d.Carried = row.Weight, traffic
	return k, d, errors.Join(errRow, errTraffic)
}

// traffic reads the wide statistics of a row, or those that old kernels have alone.
func (f fields) traffic(wide, narrow int) (t Traffic, err error) {
	raw := f[wide]
	if raw == nil {
		raw = f[narrow]
	}
	s, err := readFields(raw)
	if err != nil {
		return t, err
	}
	var errs [5]error
	t.Connections, errs[0] = s.statistic(statConnections)
	t.PacketsIn, errs[1] = s.statistic(statPacketsIn)
	t.PacketsOut, errs[2] = s.statistic(statPacketsOut)
	t.BytesIn, errs[3] = s.statistic(statBytesIn)
	t.BytesOut, errs[4] = s.statistic(statBytesOut)
	return t, errors.Join(errs[:]...)
}

// statistic is a number of 64 bits, or of 32.
func (f fields) statistic(kind int) (uint64, error) {
	switch raw := f[kind]; len(raw) {
	case 4:
		return uint64(native.Uint32(raw)), nil
	case 8:
		return native.Uint64(raw), nil
	default:
		return 0, fmt.Errorf("%w: statistic %d of %d bytes", errMalformed, kind, len(raw))
	}
}
