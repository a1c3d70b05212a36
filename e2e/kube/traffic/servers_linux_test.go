package traffic

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// counts is what a virtual server has: how many destinations, and how many connections it has scheduled since it was made.
type counts struct{ destinations, connections uint32 }

// Offsets in struct ip_vs_service_entry, and IP_VS_SO_GET_SERVICES, of <linux/ip_vs.h>.
const (
	getServices      = 64 + 1024 + 64 + 2
	entryProtocol    = 0
	entryAddr        = 4
	entryPort        = 8
	entryDests       = 44
	entryConnections = 48
	entrySize        = 104
	entriesStart     = 8 // in struct ip_vs_get_services
	mostServers      = 8192
)

// openServers opens a socket through which the IPv4 servers of a namespace are read in one go, without anything that comes in between. It
// may be read from anywhere. /proc/net/ip_vs leaves servers out while other namespaces have some; so may a dump while one is deleted.
func (s *space) openServers(t *testing.T) int {
	t.Helper()
	fd := -1
	must(t, s.do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	}))
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// readServers reads them into buffer, which it makes when it is nil.
func readServers(fd int, buffer *[]byte) (map[netip.AddrPort]counts, error) {
	if *buffer == nil {
		*buffer = make([]byte, entriesStart+mostServers*entrySize)
	}
	clear(*buffer)
	binary.NativeEndian.PutUint32(*buffer, mostServers)
	size := uint32(len(*buffer))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_IP, getServices,
		uintptr(unsafe.Pointer(unsafe.SliceData(*buffer))), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("list the virtual servers: %w", errno)
	}
	return parseServers((*buffer)[entriesStart:]), nil
}

// parseServers reads entries until one is empty. Only those of TCP are told of, for their port is enough of a name.
func parseServers(entries []byte) map[netip.AddrPort]counts {
	out := map[netip.AddrPort]counts{}
	for ; len(entries) >= entrySize; entries = entries[entrySize:] {
		protocol := binary.NativeEndian.Uint16(entries[entryProtocol:])
		if protocol == 0 {
			break
		}
		if protocol != unix.IPPROTO_TCP {
			continue
		}
		addr, _ := netip.AddrFromSlice(entries[entryAddr : entryAddr+4])
		out[netip.AddrPortFrom(addr, binary.BigEndian.Uint16(entries[entryPort:]))] = counts{
			binary.NativeEndian.Uint32(entries[entryDests:]), binary.NativeEndian.Uint32(entries[entryConnections:]),
		}
	}
	return out
}

// compare returns what a server has lost since before: the server itself, destinations, or its
// counters, which start at 0 when it is created again.
func compare(before, now map[netip.AddrPort]counts) []string {
	var out []string
	for at, was := range before {
		switch is, ok := now[at]; {
		case !ok:
			out = append(out, at.String()+" is missing")
		case is.connections < was.connections:
			out = append(out, fmt.Sprintf("%s was made again: it had scheduled %d connections, and now %d", at, was.connections, is.connections))
		case is.destinations < was.destinations:
			out = append(out, fmt.Sprintf("%s has %d destinations, and had %d", at, is.destinations, was.destinations))
		}
	}
	slices.Sort(out)
	return out
}

// watcher reads the kernel all the time, and notes what was there in the beginning and is missing in some read.
type watcher struct {
	stop chan struct{}
	done sync.WaitGroup

	servers map[netip.AddrPort]counts // the most that was ever seen
	vigil   *vigil

	mu     sync.Mutex
	reads  map[string]int
	losses []string
	err    error
}

// watch begins with what is there now.
func (s *space) watch(t *testing.T) *watcher {
	t.Helper()
	w := &watcher{stop: make(chan struct{}), reads: map[string]int{}}
	fd, file := s.openServers(t), s.openTable(t)
	var buffer []byte
	servers, err := readServers(fd, &buffer)
	must(t, err)
	w.servers = servers
	text, err := file.again()
	must(t, err)
	wanted, err := parseTable(text)
	must(t, err)
	w.vigil = newVigil(wanted)
	w.loop("reads of all servers", betweenServers, func() ([]string, error) {
		now, err := readServers(fd, &buffer)
		if err != nil {
			return nil, err
		}
		lost := compare(w.servers, now)
		for at, is := range now {
			if _, wanted := w.servers[at]; wanted {
				w.servers[at] = counts{w.servers[at].destinations, is.connections}
			}
		}
		return lost, nil
	})
	w.loop("reads of all destinations", betweenDestinations, func() ([]string, error) {
		text, err := file.again()
		if err != nil {
			return nil, err
		}
		return w.vigil.look(text)
	})
	t.Cleanup(w.end)
	return w
}

// The watcher's pauses. A server that was created again has lost its connections for good, so it is
// detected even if it was missing for a short time. To read the file of destinations takes an
// emulated machine some tenths of a second.
const (
	betweenServers      = 100 * time.Millisecond
	betweenDestinations = time.Second
)

// loop looks until the watch ends.
func (w *watcher) loop(what string, pause time.Duration, look func() ([]string, error)) {
	w.done.Go(func() {
		for {
			select {
			case <-w.stop:
				return
			case <-time.After(pause):
			}
			lost, err := look()
			w.note(what, lost, err)
		}
	})
}

func (w *watcher) note(what string, lost []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads[what]++
	for _, row := range lost {
		w.losses = append(w.losses, time.Now().Format("15:04:05.000  ")+row)
	}
	if err != nil {
		w.err = err
	}
}

func (w *watcher) end() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.done.Wait()
}

// mostLines bounds what a failure prints.
const mostLines = 20

// check ends it, and fails for what was missing in some read.
func (w *watcher) check(t *testing.T) {
	t.Helper()
	w.end()
	counted := 0
	for _, s := range w.servers {
		if s.connections > 0 {
			counted++
		}
	}
	for what, n := range w.reads {
		figure(t, what, n)
	}
	figure(t, "servers and destinations watched", fmt.Sprintf("%d and %d; %d times one was missing", w.vigil.wanted.servers(), len(w.vigil.wanted)-w.vigil.wanted.servers(), len(w.losses)))
	if w.err != nil {
		t.Errorf("read the kernel: %v", w.err)
	}
	if counted < len(w.servers)*3/4 {
		t.Errorf("only %d of %d virtual servers have scheduled a connection, and would tell if they were made again", counted, len(w.servers))
	}
	if n := len(w.losses); n > 0 {
		t.Errorf("%d times something was missing:\n%s", n, strings.Join(w.losses[:min(n, mostLines)], "\n"))
	}
}

func TestCompareServers(t *testing.T) {
	entries := make([]byte, 4*entrySize)
	for i, e := range []struct {
		protocol    uint16
		port        uint16
		dests, made uint32
	}{{unix.IPPROTO_TCP, 80, 3, 7}, {unix.IPPROTO_UDP, 53, 2, 9}, {unix.IPPROTO_TCP, 443, 1, 1}} {
		at := entries[i*entrySize:]
		binary.NativeEndian.PutUint16(at[entryProtocol:], e.protocol)
		copy(at[entryAddr:], []byte{10, 96, 0, 1})
		binary.BigEndian.PutUint16(at[entryPort:], e.port)
		binary.NativeEndian.PutUint32(at[entryDests:], e.dests)
		binary.NativeEndian.PutUint32(at[entryConnections:], e.made)
	}
	web, tls := netip.MustParseAddrPort("10.96.0.1:80"), netip.MustParseAddrPort("10.96.0.1:443")
	before := parseServers(entries)
	if len(before) != 2 || before[web] != (counts{3, 7}) || before[tls] != (counts{1, 1}) {
		t.Errorf("parsed %v", before)
	}
	for _, tt := range []struct {
		name string
		now  map[netip.AddrPort]counts
		want []string
	}{
		{"more of all", map[netip.AddrPort]counts{web: {4, 8}, tls: {1, 1}, netip.MustParseAddrPort("10.96.0.2:80"): {}}, nil},
		{"one missing", map[netip.AddrPort]counts{web: {3, 7}}, []string{"10.96.0.1:443 is missing"}},
		{"made again", map[netip.AddrPort]counts{web: {3, 0}, tls: {1, 1}}, []string{"10.96.0.1:80 was made again: it had scheduled 7 connections, and now 0"}},
		{"fewer destinations", map[netip.AddrPort]counts{web: {2, 7}, tls: {1, 1}}, []string{"10.96.0.1:80 has 2 destinations, and had 3"}},
	} {
		same(t, tt.name, tt.want, compare(before, tt.now))
	}
}
