package vserver_test

import (
	"encoding/binary"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
)

// peer plays the kernel's side of the netlink protocol over a Table, so that
// the Handle's own code runs on every machine. Its codec is written apart from
// the Handle's, from include/uapi/linux/ip_vs.h.
type peer struct {
	mu       sync.Mutex
	table    *vservertest.Table
	marks    []uint32
	timeouts [3]uint32 // TCP, TCP after FIN and UDP, in seconds
	family   uint16    // 0: no IPVS in this kernel
	opened   int
	maxBatch int // most messages seen in one send
	limit    int

	// Faults. Each is asked with the number of the send, from 1.
	stuck     func(send int) bool // the send returns when its socket is closed
	hold      chan struct{}       // and, unless nil, this is closed too
	mute      func(send int) bool // processed, no answer
	overrun   func(send int) bool // processed, the receive buffer overflowed
	interrupt func(dump int) bool // the dump is marked as interrupted
	twice     func(dump int) bool // the dump repeats its first row
	garble    func(send int) bool // the answer does not parse
	sends     int
	dumps     int

	// list turns the text of the list into what is read.
	list func(io.Reader) io.ReadCloser
}

func newPeer() *peer {
	never := func(int) bool { return false }
	return &peer{
		table: vservertest.NewTable(), family: 0x1d, limit: 1 << 20,
		timeouts: [3]uint32{900, 120, 300}, stuck: never, mute: never, overrun: never, interrupt: never, twice: never, garble: never,
		list: io.NopCloser,
	}
}

// handle opens a Handle on the peer.
func (p *peer) handle(t testing.TB, opts vserver.Options) (*vserver.Handle, error) {
	return vserver.NewOver(zaptest.NewLogger(t), opts, func() (vserver.Wire, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.opened++
		return &peerSocket{peer: p, port: uint32(1000 + p.opened), queue: make(chan []byte, 1<<16), closed: make(chan struct{})}, nil
	}, p.counts)
}

// counts opens the list of connection counts.
func (p *peer) counts() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.family == 0 {
		return nil, syscall.ENOENT
	}
	return p.list(strings.NewReader(p.table.Proc(p.marks...))), nil
}

func (p *peer) serverCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.table.Servers)
}

type peerSocket struct {
	peer   *peer
	port   uint32
	queue  chan []byte // a nil datagram is an overrun
	once   sync.Once
	closed chan struct{}
}

func (s *peerSocket) PortID() uint32 { return s.port }
func (s *peerSocket) SendLimit() int { return s.peer.limit }
func (s *peerSocket) Close() error   { s.once.Do(func() { close(s.closed) }); return nil }

func (s *peerSocket) Receive(b []byte) (int, error) {
	select {
	case datagram := <-s.queue:
		if datagram == nil {
			return 0, syscall.ENOBUFS
		}
		return copy(b, datagram), nil
	case <-s.closed:
		return 0, io.ErrClosedPipe
	}
}

// Send works through a buffer as netlink_rcv_skb does.
func (s *peerSocket) Send(b []byte) error {
	p := s.peer
	p.mu.Lock()
	p.sends++
	send := p.sends
	if p.stuck(send) {
		p.mu.Unlock()
		if p.hold != nil {
			<-p.hold
		}
		<-s.closed
		return io.ErrClosedPipe
	}
	defer p.mu.Unlock()
	if len(b) > p.limit {
		return syscall.EMSGSIZE
	}
	var answers [][]byte
	messages := 0
	for ; len(b) > 0; messages++ {
		length := binary.NativeEndian.Uint32(b)
		answers = append(answers, p.process(b[:length], s.port)...)
		b = b[(length+3)&^3:]
	}
	p.maxBatch = max(p.maxBatch, messages)
	s.deliver(send, answers)
	return nil
}

func (s *peerSocket) deliver(send int, answers [][]byte) {
	switch {
	case s.peer.mute(send):
		return
	case s.peer.overrun(send):
		answers = [][]byte{nil}
	case s.peer.garble(send):
		answers = [][]byte{{0xff, 0xff, 0xff, 0xff, 1, 2, 3}}
	}
	for _, a := range answers {
		s.queue <- a
	}
}

// process handles one message and gives the datagrams it is answered with.
func (p *peer) process(m []byte, port uint32) [][]byte {
	kind, flags := binary.NativeEndian.Uint16(m[4:]), binary.NativeEndian.Uint16(m[6:])
	seq, cmd := binary.NativeEndian.Uint32(m[8:]), m[16]
	reply := func(kind uint16, extra uint16, body []byte) []byte { return datagram(kind, extra, seq, port, body) }
	var data [][]byte
	var errno syscall.Errno
	switch {
	case kind == 0x10:
		if p.family == 0 {
			errno = syscall.ENOENT
			break
		}
		data = append(data, reply(0x10, 0, append([]byte{1, 2, 0, 0}, u16Attr(1, p.family)...)))
	case kind != p.family:
		errno = syscall.ENOENT
	case flags&0x300 == 0x300:
		return p.dump(cmd, m[20:], reply)
	case cmd == 4:
		k := readServerKey(attrs(attrs(m[20:])[1]))
		v, ok := p.table.Servers[k]
		if !ok {
			errno = syscall.ESRCH
			break
		}
		data = append(data, reply(p.family, 0, serverRow(k, v, p.table.Carried[k])))
	case cmd == 12:
		p.setTimeouts(attrs(m[20:]))
	case cmd == 13: // answered as the command that sets it (ip_vs_genl_get_cmd)
		data = append(data, reply(p.family, 0, slices.Concat([]byte{12, 1, 0, 0}, u32Attr(4, p.timeouts[0]), u32Attr(5, p.timeouts[1]), u32Attr(6, p.timeouts[2]))))
	default:
		errno = p.write(cmd, attrs(m[20:]))
	}
	if errno != 0 || flags&4 != 0 {
		body := binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno)))
		data = append(data, reply(2, 0x100, append(body, m[:16]...)))
	}
	return data
}

// setTimeouts leaves what is 0 as it is (ip_vs_set_timeout).
func (p *peer) setTimeouts(config map[uint16][]byte) {
	for i := range p.timeouts {
		if v := binary.NativeEndian.Uint32(config[uint16(4+i)]); v != 0 {
			p.timeouts[i] = v
		}
	}
}

func (p *peer) write(cmd byte, top map[uint16][]byte) syscall.Errno {
	server := attrs(top[1])
	k := readServerKey(server)
	d := attrs(top[2])
	dk := vserver.DestinationKey{Server: k}
	if cmd >= 5 {
		dk.Addr, dk.Port = readAddr(d[1], d[11]), binary.BigEndian.Uint16(d[2])
	}
	switch cmd {
	case 1:
		return p.table.AddServer(k, readServerValue(k, server))
	case 2:
		return p.table.UpdateServer(k, readServerValue(k, server))
	case 3:
		return p.table.DeleteServer(k)
	case 5:
		return p.table.AddDestination(dk, readDestination(d))
	case 6:
		return p.table.UpdateDestination(dk, readDestination(d))
	case 7:
		return p.table.DeleteDestination(dk)
	default:
		return syscall.EOPNOTSUPP
	}
}

// dump answers in datagrams of 100 rows and an end of its own.
func (p *peer) dump(cmd byte, body []byte, reply func(kind, flags uint16, body []byte) []byte) [][]byte {
	p.dumps++
	var rows [][]byte
	if cmd == 4 {
		for _, mark := range p.marks {
			rows = append(rows, nestAttr(1, u16Attr(1, 2), u32Attr(5, mark), cAttr(6, "rr")))
		}
		for _, k := range slices.SortedFunc(maps.Keys(p.table.Servers), vserver.CompareServers) {
			rows = append(rows, serverRow(k, p.table.Servers[k], p.table.Carried[k])[4:])
		}
	} else {
		of := p.table.Destinations[readServerKey(attrs(attrs(body)[1]))]
		for _, k := range slices.SortedFunc(maps.Keys(of), vserver.DestinationKey.Compare) {
			rows = append(rows, destinationRow(k, of[k], p.table.Connections[k], p.table.CarriedBy[k]))
		}
	}
	if p.twice(p.dumps) && len(rows) > 0 {
		rows = append(rows, rows[0])
	}
	flags := uint16(2)
	if p.interrupt(p.dumps) {
		flags |= 0x10
	}
	var out [][]byte
	for chunk := range slices.Chunk(rows, 100) {
		var b []byte
		for _, row := range chunk {
			b = append(b, reply(p.family, flags, append([]byte{1, 1, 0, 0}, row...))...)
		}
		out = append(out, b)
	}
	return append(out, reply(3, flags, make([]byte, 4)))
}
