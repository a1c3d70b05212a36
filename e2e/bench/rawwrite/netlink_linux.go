package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Numbers of include/uapi/linux/netlink.h and ip_vs.h.
const (
	flagsAt        = 6 // nlmsg_flags in a header
	seqAt          = 8 // nlmsg_seq in it
	newServer      = 1 // IPVS_CMD_NEW_SERVICE
	newDestination = 5 // IPVS_CMD_NEW_DEST
)

var native = binary.NativeEndian

// parcel is netlink messages, one behind the other.
type parcel struct {
	bytes  []byte
	starts []int // where each message begins
}

// begin starts a message to a family of generic netlink. cut fills in its length and number.
func (p *parcel) begin(family uint16, command byte) {
	p.starts = append(p.starts, len(p.bytes))
	p.bytes = native.AppendUint32(p.bytes, 0)
	p.bytes = native.AppendUint16(p.bytes, family)
	p.bytes = native.AppendUint16(p.bytes, unix.NLM_F_REQUEST)
	p.bytes = append(p.bytes, 0, 0, 0, 0, 0, 0, 0, 0)
	p.bytes = append(p.bytes, command, 1, 0, 0) // struct genlmsghdr
}

// attr appends an attribute with a payload.
func (p *parcel) attr(kind uint16, payload ...byte) {
	p.bytes = native.AppendUint16(p.bytes, uint16(4+len(payload)))
	p.bytes = native.AppendUint16(p.bytes, kind)
	p.bytes = append(p.bytes, payload...)
	p.bytes = append(p.bytes, "\x00\x00\x00"[:-len(payload)&3]...)
}

func (p *parcel) attr16(kind, v uint16)        { p.attr(kind, native.AppendUint16(nil, v)...) }
func (p *parcel) attr32(kind uint16, v uint32) { p.attr(kind, native.AppendUint32(nil, v)...) }
func (p *parcel) net16(kind, v uint16)         { p.attr(kind, byte(v>>8), byte(v)) }
func (p *parcel) net32(kind uint16, v uint32)  { p.attr(kind, binary.BigEndian.AppendUint32(nil, v)...) }
func (p *parcel) text(kind uint16, s string)   { p.attr(kind, append([]byte(s), 0)...) }

// addr is a union nf_inet_addr, of which IPv4 has the first four bytes.
func (p *parcel) addr(kind uint16, a netip.Addr) {
	p.attr(kind, append(a.AsSlice(), make([]byte, 12)...)...)
}

// nest appends an attribute made of attributes.
func (p *parcel) nest(kind uint16, content func()) {
	mark := len(p.bytes)
	p.attr(kind)
	content()
	native.PutUint16(p.bytes[mark:], uint16(len(p.bytes)-mark))
}

// send is a part of a parcel that goes to the kernel at once.
type send struct {
	bytes []byte
	last  uint32 // the number of its last message, which asks for an answer
}

// Bounds of a send; the kernel refuses one that is longer than the send buffer.
const (
	maxSend     = 128 << 10
	maxMessages = 512
)

// cut finishes the messages and divides them into sends.
func (p *parcel) cut() (sends []send) {
	ends := append(p.starts[min(1, len(p.starts)):len(p.starts):len(p.starts)], len(p.bytes))
	first := 0
	for i, start := range p.starts {
		native.PutUint32(p.bytes[start:], uint32(ends[i]-start))
		native.PutUint32(p.bytes[start+seqAt:], uint32(i+1))
		last := i+1 == len(p.starts)
		if !last && i+1-first < maxMessages && ends[i+1]-p.starts[first] <= maxSend {
			continue
		}
		flags := p.bytes[start+flagsAt:]
		native.PutUint16(flags, native.Uint16(flags)|unix.NLM_F_ACK)
		sends = append(sends, send{p.bytes[p.starts[first]:ends[i]], uint32(i + 1)})
		first = i + 1
	}
	return sends
}

// packServers packs virtual servers and then destinations, for a family of generic netlink.
func packServers(family uint16, r rows) *parcel {
	p := &parcel{}
	key := func(addr netip.Addr, port uint16, protocol netkey.Protocol) {
		p.attr16(1, unix.AF_INET) // IPVS_SVC_ATTR_AF and so on
		p.attr16(2, uint16(protocol))
		p.addr(3, addr)
		p.net16(4, port)
	}
	for _, s := range r.servers {
		p.begin(family, newServer)
		p.nest(1, func() {
			key(s.Addr, s.Port, s.Protocol)
			p.text(6, scheduler)
			p.attr(7, 0, 0, 0, 0, 255, 255, 255, 255) // flags, and a mask of those that are meant
			p.attr32(8, 0)                            // timeout
			p.net32(9, ^uint32(0))                    // netmask
		})
	}
	for _, d := range r.destinations {
		p.begin(family, newDestination)
		p.nest(1, func() { key(d.Server.Addr, d.Server.Port, d.Server.Protocol) })
		p.nest(2, func() {
			p.addr(1, d.Addr) // IPVS_DEST_ATTR_ADDR and so on
			p.net16(2, d.Port)
			p.attr32(3, 0) // forward by masquerading
			p.attr32(4, weight)
			p.attr32(5, 0) // thresholds
			p.attr32(6, 0)
			p.attr16(11, unix.AF_INET)
		})
	}
	return p
}

// socket is a netlink socket of the namespace in which it was opened.
type socket struct {
	fd    int
	reply []byte
}

// dial opens a socket. An answer does not echo the request, so many answers fit into the buffer.
func dial(protocol int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	wait := unix.Timeval{Sec: 30} // for one send
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4*maxSend),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4*maxSend),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set up netlink socket: %w", err)
	}
	return &socket{fd, make([]byte, 64<<10)}, nil
}

func (s *socket) close() { _ = unix.Close(s.fd) }

// write sends everything and waits for the answer to each send. It continues after a refusal, as the kernel does, and returns all refusals.
func (s *socket) write(sends []send) error {
	var refused []error
	for _, part := range sends {
		if err := unix.Sendto(s.fd, part.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		for done := false; !done; {
			n, _, err := unix.Recvfrom(s.fd, s.reply, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return fmt.Errorf("wait for an answer: %w", err)
			}
			var no error
			if done, no, err = answers(s.reply[:n], part.last); err != nil {
				return err
			}
			refused = append(refused, no)
		}
	}
	return errors.Join(refused...)
}

// answers reads one datagram: whether it has the answer to the last message, and its first refusal.
func answers(b []byte, last uint32) (done bool, refused, err error) {
	for len(b) >= unix.NLMSG_HDRLEN+4 {
		length := int(native.Uint32(b))
		if length < unix.NLMSG_HDRLEN+4 || length > len(b) {
			return done, refused, fmt.Errorf("an answer of length %d in %d bytes", length, len(b))
		}
		if kind := native.Uint16(b[4:]); kind != unix.NLMSG_ERROR {
			return done, refused, fmt.Errorf("a message of type %d instead of an answer", kind)
		}
		seq := native.Uint32(b[seqAt:])
		if code := int32(native.Uint32(b[unix.NLMSG_HDRLEN:])); code != 0 && refused == nil {
			refused = fmt.Errorf("message %d was refused: %w", seq, unix.Errno(-code))
		}
		done = done || seq == last
		b = b[min((length+3)&^3, len(b)):]
	}
	return done, refused, nil
}
