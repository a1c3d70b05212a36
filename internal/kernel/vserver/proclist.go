package vserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// list takes /proc/net/ip_vs apart (ip_vs_info_seq_show in
// net/netfilter/ipvs/ip_vs_ctl.c), a line at a time and without keeping any:
//
//	IP Virtual Server version 1.2.1 (size=4096)
//	Prot LocalAddress:Port Scheduler Flags
//	  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
//	TCP  0A600001:0050 rr
//	  -> 0A000001:1F90      Masq    1      2          3
//	TCP  [fd00:0000:0000:0000:0000:0000:0000:0001]:0050 rr persistent 2700000 80000000
//	FWM  00004000 rr
type list struct {
	rows  rows
	lines int
	buf   []byte
	kept  int // of buf: the start of a line whose end is still to come
	// servers is how many rows of servers there were.
	servers int
}

// rows takes the rows as they come. A row that makes no sense is errMalformed;
// what a row refers to is of use during the call only.
type rows interface {
	server(serverLine) error
	destination(destinationLine) error
}

// serverLine is the row of a server. Servers of firewall marks, and of a protocol that this package
// does not know, are not mine and have no key.
type serverLine struct {
	key       ServerKey
	mine      bool
	scheduler []byte
	flags     []byte // all words that follow
}

// destinationLine is the row of a destination of the last server.
type destinationLine struct {
	addr    netip.Addr
	port    uint16
	forward []byte
	weight  uint32
	count   Connections
}

// listBuffer is how much of the list is held at a time. The kernel hands out a
// page a call, or more where one server's rows take more.
const listBuffer = 64 << 10

// listHeader is how many lines come before the rows.
const listHeader = 3

// read goes through the whole list. Next fills a buffer as io.ReadFull does.
func (l *list) read(next func([]byte) (int, error)) error {
	for {
		if end, err := l.piece(next); end || err != nil {
			return err
		}
	}
}

// piece reads no more than a buffer.
func (l *list) piece(next func([]byte) (int, error)) (end bool, err error) {
	n, err := next(l.buf[l.kept:])
	end = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !end {
		return false, err
	}
	rest, err := l.take(l.buf[:l.kept+n])
	switch {
	case err != nil:
		return false, err
	case end && (len(rest) > 0 || l.lines < listHeader):
		return false, fmt.Errorf("%w: the list ends in line %d", errMalformed, l.lines+1)
	case len(rest) == len(l.buf):
		return false, fmt.Errorf("%w: line %d has no end", errMalformed, l.lines+1)
	}
	l.kept = copy(l.buf, rest)
	return end, nil
}

// take reads the lines that are whole and gives back what is left.
func (l *list) take(b []byte) (rest []byte, err error) {
	for {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			return b, nil
		}
		l.lines++
		if err := l.line(b[:end]); err != nil {
			return nil, fmt.Errorf("%w: line %d of the list: %.80q", err, l.lines, b[:end])
		}
		b = b[end+1:]
	}
}

func (l *list) line(b []byte) error {
	if l.lines == 1 && !bytes.HasPrefix(b, []byte("IP Virtual Server version ")) {
		return errMalformed
	}
	if l.lines <= listHeader {
		return nil
	}
	if row, ok := bytes.CutPrefix(b, []byte("  -> ")); ok {
		return l.destinationRow(row)
	}
	return l.serverRow(b)
}

// serverRow opens the rows of a server.
func (l *list) serverRow(b []byte) error {
	name, rest := cutField(b)
	l.servers++
	var s serverLine
	if s.key.Protocol, s.mine = listedProtocol(name); !s.mine {
		if !foreignServer(name) {
			return errMalformed
		}
		return l.rows.server(s)
	}
	endpoint, rest := cutField(rest)
	s.scheduler, s.flags = cutField(rest)
	var ok bool
	if s.key.Addr, s.key.Port, ok = listedEndpoint(endpoint); !ok || len(s.scheduler) == 0 {
		return errMalformed
	}
	return l.rows.server(s)
}

func (l *list) destinationRow(b []byte) error {
	endpoint, rest := cutField(b)
	forward, rest := cutField(rest)
	weight, rest := cutField(rest)
	active, rest := cutField(rest)
	inactive, _ := cutField(rest)
	d := destinationLine{forward: forward}
	var okEndpoint, okWeight, okActive, okInactive bool
	d.addr, d.port, okEndpoint = listedEndpoint(endpoint)
	d.weight, okWeight = listedCount(weight)
	d.count.Active, okActive = listedCount(active)
	d.count.Inactive, okInactive = listedCount(inactive)
	if !okEndpoint || len(forward) == 0 || !okWeight || !okActive || !okInactive || l.lines == listHeader+1 {
		return errMalformed
	}
	return l.rows.destination(d)
}

// openList opens the kernel's list of this namespace.
func (h *Handle) openList(ctx context.Context) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := h.free(); err != nil {
		return nil, err
	}
	file, err := bounded(ctx, h, h.opener.list)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (%w)", ErrUnsupported, err)
	}
	return file, err
}

// fill reads from a file as io.ReadFull does, under the deadline.
func (h *Handle) fill(ctx context.Context, file io.Reader) func([]byte) (int, error) {
	return func(b []byte) (int, error) {
		return bounded(ctx, h, func() (int, error) { return io.ReadFull(file, b) })
	}
}

// letGo closes a file without waiting: a read that is stuck keeps it.
func letGo(file io.Closer) { go func() { _ = file.Close() }() }

// cutField gives the next word of a row and what follows it.
func cutField(b []byte) (field, rest []byte) {
	b = trimBlanks(b)
	if end := bytes.IndexByte(b, ' '); end >= 0 {
		return b[:end], b[end:]
	}
	return b, nil
}

func trimBlanks(b []byte) []byte { return bytes.TrimLeft(b, " ") }

func listedProtocol(name []byte) (protocol netkey.Protocol, ok bool) {
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
