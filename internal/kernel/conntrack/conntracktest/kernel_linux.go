package conntracktest

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Kernel is the table of a network namespace as another process on the node sees it. One goroutine
// uses it.
type Kernel struct {
	fd  int
	seq uint32
	in  []byte
}

// Messages of ctnetlink, with the number of its subsystem.
const (
	msgNew    = 1 << 8
	msgGet    = 1<<8 | 1
	msgDelete = 1<<8 | 2
)

// Open opens the table of the calling thread's network namespace.
func Open() (*Kernel, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netfilter socket: %w", err)
	}
	k := &Kernel{fd: fd, in: make([]byte, 32<<10)}
	// A test waits rather than hangs.
	patience := unix.NsecToTimeval(time.Minute.Nanoseconds())
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		k.Close()
		return nil, fmt.Errorf("set up netfilter socket: %w", err)
	}
	return k, nil
}

// Close gives the socket back.
func (k *Kernel) Close() { _ = unix.Close(k.fd) }

// Add puts flows into the table, for an hour; one that is there is an error.
func (k *Kernel) Add(flows ...Flow) error { return k.AddAll(slices.Values(flows)) }

// addBatch is how many flows are added with one system call.
const addBatch = 256

// AddAll is Add for very many flows.
func (k *Kernel) AddAll(flows iter.Seq[Flow]) error {
	var batch []byte
	timeout := tlv(ctaTimeout, binary.BigEndian.AppendUint32(nil, 3600))
	count := 0
	for f := range flows {
		k.seq++
		mark := len(batch)
		batch = k.appendHeader(batch, msgNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL, f.family())
		batch = append(AppendFlow(batch, f), timeout...)
		binary.NativeEndian.PutUint32(batch[mark:], uint32(len(batch)-mark))
		if count++; count == addBatch {
			if err := k.send(batch, mark); err != nil {
				return err
			}
			batch, count = batch[:0], 0
		}
	}
	if count == 0 {
		return nil
	}
	return k.send(batch, len(batch)-lastLength(batch))
}

// lastLength is how long the last of some messages is.
func lastLength(batch []byte) (length int) {
	for len(batch) > 0 {
		length = int(binary.NativeEndian.Uint32(batch))
		batch = batch[length:]
	}
	return length
}

// Remove takes flows out of the table.
func (k *Kernel) Remove(flows ...Flow) error {
	for _, f := range flows {
		k.seq++
		if err := k.send(k.message(msgDelete, 0, f.family(), AppendFlow(nil, f)), 0); err != nil {
			return fmt.Errorf("remove %s: %w", f, err)
		}
	}
	return nil
}

// Flows reads the table, sorted.
func (k *Kernel) Flows() ([]Flow, error) {
	var out []Flow
	err := k.Each(func(f Flow) { out = append(out, f) })
	slices.SortFunc(out, Flow.Compare)
	return slices.Compact(out), err
}

// Each reads the table. A flow may be told twice.
func (k *Kernel) Each(visit func(Flow)) error { return k.dump(unix.AF_UNSPEC, nil, visit) }

// AnsweredBy reads the flows that an address answers, from any client. Of those of IPv6 the kernel
// gives all: it cannot compare their addresses.
func (k *Kernel) AnsweredBy(addr netip.Addr) ([]Flow, error) {
	var out []Flow
	family, body := byte(unix.AF_INET6), []byte(nil)
	if addr.Is4() {
		const source = 1 << 0
		flags := append(tlv(1, make([]byte, 4)), tlv(2, binary.NativeEndian.AppendUint32(nil, source))...)
		family, body = unix.AF_INET, append(
			tlv(ctaTupleReply|nested, tlv(1|nested, append(tlv(1, addr.AsSlice()), tlv(2, make([]byte, 4))...))),
			tlv(ctaFilter|nested, flags)...)
	}
	err := k.dump(family, body, func(f Flow) {
		if f.Answers.Addr() == addr {
			out = append(out, f)
		}
	})
	slices.SortFunc(out, Flow.Compare)
	return slices.Compact(out), err
}

func (k *Kernel) dump(family byte, body []byte, visit func(Flow)) error {
	k.seq++
	request := k.message(msgGet, unix.NLM_F_DUMP, family, body)
	if err := unix.Sendto(k.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask for flows: %w", err)
	}
	for {
		done, err := k.receive(func(m message) error {
			switch m.kind {
			case unix.NLMSG_ERROR:
				return unix.Errno(-int32(binary.NativeEndian.Uint32(m.body)))
			case msgNew:
				f, _, err := ParseFlow(m.body[4:])
				if err == nil {
					visit(f)
				}
				return err
			}
			return nil
		})
		if done || err != nil {
			return err
		}
	}
}

// Count returns how many flows the calling thread's namespace has, by the kernel's
// own counter.
func Count() (n int, err error) {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err == nil {
		_, err = fmt.Sscan(string(text), &n)
	}
	return n, err
}

// family is the number that the kernel has for the addresses of a flow.
func (f Flow) family() byte {
	if f.Client.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func (k *Kernel) message(kind, flags uint16, family byte, body []byte) []byte {
	b := append(k.appendHeader(nil, kind, flags, family), body...)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

// appendHeader begins a message whose length is put in later.
func (k *Kernel) appendHeader(b []byte, kind, flags uint16, family byte) []byte {
	b = append(b, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, k.seq)
	return append(b, 0, 0, 0, 0, family, 0, 0, 0)
}

// send sends messages, the last of which begins at an offset, and returns the first
// refusal. Only the last one asks for an answer; those that fail are answered anyway.
func (k *Kernel) send(batch []byte, last int) error {
	flags := batch[last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	if err := unix.Sendto(k.fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send requests: %w", err)
	}
	var failed error
	for answered := false; !answered; {
		_, err := k.receive(func(m message) error {
			if m.kind == unix.NLMSG_ERROR {
				answered = answered || m.seq == k.seq
				if code := int32(binary.NativeEndian.Uint32(m.body)); code != 0 && failed == nil {
					failed = unix.Errno(-code)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("answers to requests: %w", err)
		}
	}
	return failed
}

// message is one of an answer.
type message struct {
	kind uint16
	seq  uint32
	body []byte
}

// receive takes one datagram; done reports the end of a list.
func (k *Kernel) receive(each func(message) error) (done bool, err error) {
	n, _, err := unix.Recvfrom(k.fd, k.in, 0)
	if err != nil {
		return false, err
	}
	for b := k.in[:n]; len(b) >= 16 && !done; {
		length := int(binary.NativeEndian.Uint32(b))
		m := message{binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:]), b[16:length]}
		done = m.kind == unix.NLMSG_DONE
		if err := each(m); err != nil {
			return done, err
		}
		b = b[min(len(b), (length+3)/4*4):]
	}
	return done, nil
}
