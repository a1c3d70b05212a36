package vserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// countList takes /proc/net/ip_vs apart (ip_vs_info_seq_show in
// net/netfilter/ipvs/ip_vs_ctl.c), a line at a time and without keeping any:
//
//	IP Virtual Server version 1.2.1 (size=4096)
//	Prot LocalAddress:Port Scheduler Flags
//	  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
//	TCP  0A600001:0050 rr
//	  -> 0A000001:1F90      Masq    1      2          3
//	TCP  [fd00:0000:0000:0000:0000:0000:0000:0001]:0050 rr
//	FWM  00004000 rr
type countList struct {
	wanted  map[DestinationKey]struct{}
	servers map[ServerKey]struct{} // those of the wanted
	found   map[DestinationKey]Connections
	lines   int
	// server has the rows of destinations that come now. Its own row was the last
	// one of a server, and some of its destinations are wanted if asked is set.
	server ServerKey
	asked  bool
}

func newCountList(wanted map[DestinationKey]struct{}) *countList {
	l := &countList{
		wanted:  wanted,
		servers: make(map[ServerKey]struct{}),
		found:   make(map[DestinationKey]Connections, len(wanted)),
	}
	for k := range wanted {
		l.servers[k.Server] = struct{}{}
	}
	return l
}

// header is how many lines come before the rows.
const header = 3

// read goes through the whole list. Next fills a buffer as io.ReadFull does.
func (l *countList) read(buf []byte, next func([]byte) (int, error)) error {
	kept := 0 // the start of a line whose end is still to come
	for {
		n, err := next(buf[kept:])
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return err
		}
		rest, err := l.take(buf[:kept+n])
		switch {
		case err != nil:
			return err
		case end && (len(rest) > 0 || l.lines < header):
			return fmt.Errorf("%w: the list ends in line %d", errMalformed, l.lines+1)
		case end:
			return nil
		case len(rest) == len(buf):
			return fmt.Errorf("%w: line %d has no end", errMalformed, l.lines+1)
		}
		kept = copy(buf, rest)
	}
}

// take reads the lines that are whole and gives back what is left.
func (l *countList) take(b []byte) (rest []byte, err error) {
	for {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			return b, nil
		}
		l.lines++
		if !l.line(b[:end]) {
			return nil, fmt.Errorf("%w: line %d of the list: %.80q", errMalformed, l.lines, b[:end])
		}
		b = b[end+1:]
	}
}

// line reads one line, or tells that it makes no sense.
func (l *countList) line(b []byte) bool {
	if l.lines == 1 {
		return bytes.HasPrefix(b, []byte("IP Virtual Server version "))
	}
	if l.lines <= header {
		return true
	}
	if row, ok := bytes.CutPrefix(b, []byte("  -> ")); ok {
		return l.destinationRow(row)
	}
	return l.serverRow(b)
}

// serverRow opens the rows of a server. One for a firewall mark, or of a protocol
// that this room has no name for, is foreign.
func (l *countList) serverRow(b []byte) bool {
	name, rest := cutField(b)
	protocol, mine := listedProtocol(name)
	if !mine {
		l.asked = false
		return foreignServer(name)
	}
	endpoint, rest := cutField(rest)
	scheduler, _ := cutField(rest)
	addr, port, ok := listedEndpoint(endpoint)
	l.server = ServerKey{Addr: addr, Port: port, Protocol: protocol}
	_, l.asked = l.servers[l.server]
	return ok && len(scheduler) > 0
}

func (l *countList) destinationRow(b []byte) bool {
	endpoint, rest := cutField(b)
	forward, rest := cutField(rest)
	weight, rest := cutField(rest)
	active, rest := cutField(rest)
	inactive, _ := cutField(rest)
	addr, port, ok := listedEndpoint(endpoint)
	_, okWeight := listedCount(weight)
	a, okActive := listedCount(active)
	i, okInactive := listedCount(inactive)
	if !ok || len(forward) == 0 || !okWeight || !okActive || !okInactive || l.lines == header+1 {
		return false
	}
	if !l.asked {
		return true
	}
	l.add(DestinationKey{Server: l.server, Addr: addr, Port: port}, Connections{Active: a, Inactive: i})
	return true
}

// add takes the counts of a destination if it is wanted.
func (l *countList) add(k DestinationKey, c Connections) {
	if _, wanted := l.wanted[k]; wanted {
		seen := l.found[k]
		l.found[k] = Connections{Active: max(seen.Active, c.Active), Inactive: max(seen.Inactive, c.Inactive)}
	}
}

// lacking are the servers of which not all that is wanted was found. A key that
// the kernel cannot have is not looked for.
func (l *countList) lacking() map[ServerKey]struct{} {
	servers := make(map[ServerKey]struct{})
	for k := range l.wanted {
		if _, found := l.found[k]; !found && k.check() == nil {
			servers[k.Server] = struct{}{}
		}
	}
	return servers
}

// cutField gives the next word of a row and what follows it.
func cutField(b []byte) (field, rest []byte) {
	b = bytes.TrimLeft(b, " ")
	if end := bytes.IndexByte(b, ' '); end >= 0 {
		return b[:end], b[end:]
	}
	return b, nil
}

func listedProtocol(name []byte) (protocol uint8, ok bool) {
	switch string(name) {
	case "TCP":
		return ProtocolTCP, true
	case "UDP":
		return ProtocolUDP, true
	case "SCTP":
		return ProtocolSCTP, true
	default:
		return 0, false
	}
}

// foreignServer knows the other words that a server's row begins with: FWM and
// what ip_vs_proto_name gives, which is IP_ and a number for most protocols.
func foreignServer(name []byte) bool {
	switch string(name) {
	case "FWM", "IP", "ICMP", "ICMPv6":
		return true
	default:
		return bytes.HasPrefix(name, []byte("IP_"))
	}
}

// listedEndpoint reads 0A600001:0050 or [fd00:0000:...:0001]:0050.
func listedEndpoint(b []byte) (addr netip.Addr, port uint16, ok bool) {
	colon := bytes.LastIndexByte(b, ':')
	if colon < 0 || len(b)-colon-1 != 4 {
		return addr, 0, false
	}
	p, ok := hexNumber(b[colon+1:])
	if !ok {
		return addr, 0, false
	}
	if b[0] == '[' {
		addr, ok = listedIPv6(b[:colon])
	} else {
		addr, ok = listedIPv4(b[:colon])
	}
	return addr, uint16(p), ok
}

func listedIPv4(b []byte) (netip.Addr, bool) {
	v, ok := hexNumber(b)
	if len(b) != 8 || !ok {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), true
}

// listedIPv6 reads the kernel's long form (%pI6), in brackets.
func listedIPv6(b []byte) (netip.Addr, bool) {
	const length = len("[fd00:0000:0000:0000:0000:0000:0000:0001]")
	var addr [16]byte
	if len(b) != length || b[length-1] != ']' {
		return netip.Addr{}, false
	}
	for i := range 8 {
		group := b[1+5*i:]
		v, ok := hexNumber(group[:4])
		if !ok || i < 7 && group[4] != ':' {
			return netip.Addr{}, false
		}
		addr[2*i], addr[2*i+1] = byte(v>>8), byte(v)
	}
	return netip.AddrFrom16(addr), true
}

// hexNumber reads one to eight digits.
func hexNumber(b []byte) (v uint32, ok bool) {
	if len(b) == 0 || len(b) > 8 {
		return 0, false
	}
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | uint32(c)
	}
	return v, true
}

// listedCount reads one of the kernel's 32-bit counters, which it prints with a
// sign; one that fell below zero counts nothing.
func listedCount(b []byte) (v uint32, ok bool) {
	digits, negative := bytes.CutPrefix(b, []byte("-"))
	if len(digits) == 0 || len(digits) > 10 {
		return 0, false
	}
	var n uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	if negative {
		return 0, n <= 1<<31
	}
	return uint32(n), n < 1<<31
}
