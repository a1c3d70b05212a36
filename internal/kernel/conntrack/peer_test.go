package conntrack_test

import (
	"encoding/binary"
	"io"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack/conntracktest"
)

// peer plays the kernel's side of the protocol over a list of flows, so that the
// Handle's own code meets what a healthy kernel rarely does.
type peer struct {
	mu     sync.Mutex
	flows  []conntracktest.Flow
	ids    map[conntracktest.Flow]uint32
	opened int

	dumps, sends int
	asked        []bool // for each dump, whether it had a filter
	batches      []int  // deletions of each send
	deleted      []conntracktest.Flow
	bare         int // deletions that do not name one flow

	// Faults.
	ignores   bool                // does not know of filters
	refuses   syscall.Errno       // the answers to a filtered dump
	missing   bool                // has no ctnetlink
	interrupt func(dump int) bool // the dump is marked as interrupted
	verdict   func(i int) int     // on the i-th deletion, instead of doing it
	mute      func(send int) bool // no answer
	overrun   func(send int) bool // the answer did not fit
	garble    func(send int) bool // the answer does not parse
	stuck     func(send int) bool // the send returns when hold is closed
	hold      chan struct{}
	perRead   int  // flows of a datagram
	chatter   bool // answers to others are in between
}

func newPeer(flows ...conntracktest.Flow) *peer {
	never := func(int) bool { return false }
	p := &peer{ids: map[conntracktest.Flow]uint32{}, interrupt: never, mute: never, overrun: never, garble: never, stuck: never,
		verdict: func(int) int { return 0 }, hold: make(chan struct{}), perRead: 100}
	p.add(flows...)
	return p
}

func (p *peer) add(flows ...conntracktest.Flow) {
	for _, f := range flows {
		p.flows = append(p.flows, f)
		p.ids[f] = uint32(0xbeef0000 + len(p.ids))
	}
}

// handle opens a Handle on the peer.
func (p *peer) handle(t testing.TB, opts conntrack.Options) *conntrack.Handle {
	t.Helper()
	h, err := conntrack.NewOver(zaptest.NewLogger(t), opts, p.open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func (p *peer) open() (conntrack.Wire, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	return &peerSocket{peer: p, queue: make(chan []byte, 1<<16), closed: make(chan struct{})}, nil
}

type peerSocket struct {
	peer   *peer
	queue  chan []byte // nil is an overrun
	once   sync.Once
	closed chan struct{}
}

func (s *peerSocket) Close() error { s.once.Do(func() { close(s.closed) }); return nil }

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

func (s *peerSocket) Send(b []byte) error {
	p := s.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sends++
	if p.stuck(p.sends) {
		p.mu.Unlock()
		<-p.hold
		p.mu.Lock()
		return io.ErrClosedPipe
	}
	var answers [][]byte
	deletions := 0
	for len(b) > 0 {
		length := int(binary.NativeEndian.Uint32(b))
		if binary.NativeEndian.Uint16(b[4:]) == 1<<8|2 {
			deletions++
		}
		answers = append(answers, p.process(b[:length])...)
		b = b[(length+3)/4*4:]
	}
	if deletions > 0 {
		p.batches = append(p.batches, deletions)
	}
	s.deliver(answers)
	return nil
}

func (s *peerSocket) deliver(answers [][]byte) {
	p := s.peer
	switch {
	case p.mute(p.sends):
		return
	case p.overrun(p.sends):
		answers = append(answers[:len(answers)/2], nil)
	case p.garble(p.sends):
		answers = [][]byte{{40, 0, 0, 0, 1, 2, 3}}
	}
	for _, a := range answers {
		if p.chatter {
			s.queue <- reply(3, 0, 0xffffff, make([]byte, 4)) // a list that is not ours ends
		}
		s.queue <- a
	}
}

// process handles one request.
func (p *peer) process(request []byte) [][]byte {
	seq := binary.NativeEndian.Uint32(request[8:])
	flags := binary.NativeEndian.Uint16(request[6:])
	family, body := request[16], request[20:]
	switch kind := binary.NativeEndian.Uint16(request[4:]); {
	case p.missing:
		return [][]byte{verdict(seq, syscall.EINVAL)}
	case kind == 1<<8|5:
		return [][]byte{reply(1<<8|5, 0, seq, make([]byte, 4)), verdict(seq, 0)}
	case kind == 1<<8|1 && flags&0x300 == 0x300:
		return p.dump(seq, family, body)
	case kind == 1<<8|2:
		errno := p.remove(body)
		if errno != 0 || flags&0x4 != 0 {
			return [][]byte{verdict(seq, errno)}
		}
		return nil
	}
	return [][]byte{verdict(seq, syscall.EOPNOTSUPP)}
}

func (p *peer) dump(seq uint32, family byte, body []byte) [][]byte {
	p.dumps++
	attrs, err := conntracktest.Attrs(body)
	if err != nil {
		return [][]byte{verdict(seq, syscall.EINVAL)}
	}
	filter, filtered := attrs[25]
	p.asked = append(p.asked, filtered)
	if filtered && p.refuses != 0 {
		return [][]byte{verdict(seq, p.refuses)}
	}
	matches := func(conntracktest.Flow) bool { return true }
	if filtered && !p.ignores {
		matches = matcher(filter, attrs[1])
	}
	var out [][]byte
	var datagram []byte
	rows, marked := 0, uint16(2)
	if p.interrupt(p.dumps) {
		marked |= 0x10
	}
	for _, f := range slices.Clone(p.flows) {
		if (family == 2) != f.Client.Addr().Is4() || !matches(f) {
			continue
		}
		row := conntracktest.AppendID(conntracktest.AppendFlow([]byte{family, 0, 0, 0}, f), p.ids[f])
		datagram = append(datagram, reply(1<<8, marked, seq, row)...)
		if rows++; rows%p.perRead == 0 {
			out, datagram = append(out, datagram), nil
		}
	}
	return append(out, append(datagram, reply(3, marked, seq, make([]byte, 4))...))
}

// matcher is what kernels since 5.8 make of a filter.
func matcher(filter, tuple []byte) func(conntracktest.Flow) bool {
	which, _ := conntracktest.Attrs(filter)
	parts, _ := conntracktest.Attrs(tuple)
	ip, _ := conntracktest.Attrs(parts[1])
	proto, _ := conntracktest.Attrs(parts[2])
	flags := binary.NativeEndian.Uint32(which[1])
	return func(f conntracktest.Flow) bool {
		if dialled := f.Dialled.Addr(); flags&2 != 0 {
			if dialled.Is4() && string(ip[2]) != string(dialled.AsSlice()) {
				return false
			}
			if dialled.Is6() && string(ip[4]) == string(dialled.AsSlice()) {
				return false // the wrong way round
			}
		}
		if flags&1 != 0 && string(ip[1]) != string(f.Client.Addr().AsSlice()) {
			return false
		}
		port := func(flag uint32, kind uint16, of netip.AddrPort) bool {
			return flags&flag == 0 || f.Protocol == conntrack.ProtocolSCTP || binary.BigEndian.Uint16(proto[kind]) == of.Port()
		}
		return (flags&8 == 0 || proto[1][0] == uint8(f.Protocol)) && port(16, 2, f.Client) && port(32, 3, f.Dialled)
	}
}

// remove deletes a flow as the kernel does: by tuple, zone and number.
func (p *peer) remove(body []byte) syscall.Errno {
	attrs, err := conntracktest.Attrs(body)
	if err != nil || len(attrs[1]) == 0 || len(attrs[12]) != 4 {
		p.bare++
		return syscall.EINVAL
	}
	named, id, err := conntracktest.ParseFlow(body)
	if err != nil {
		p.bare++
		return syscall.EINVAL
	}
	for i, f := range p.flows {
		if f.Protocol == named.Protocol && f.Client == named.Client && f.Dialled == named.Dialled && f.Zone == named.Zone {
			if errno := p.verdict(len(p.deleted)); errno != 0 {
				return syscall.Errno(errno)
			}
			if p.ids[f] != id {
				return syscall.ENOENT
			}
			last := len(p.flows) - 1
			p.flows[i], p.flows = p.flows[last], p.flows[:last]
			p.deleted = append(p.deleted, f)
			return 0
		}
	}
	return syscall.ENOENT
}

func reply(kind, flags uint16, seq uint32, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	return append(append(b, 0, 0, 0, 0), body...)
}

func verdict(seq uint32, errno syscall.Errno) []byte {
	return reply(2, 0, seq, binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno))))
}
