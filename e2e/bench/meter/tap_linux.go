package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
)

// Tap counts what goes over the netlink sockets of a network namespace, whoever has them open.
type Tap struct {
	fd      int
	link    *netlink.Handle
	device  netlink.Link
	traffic cell.Traffic
	changed time.Time // when the last message went to the kernel that asks for a change
	writing map[string]time.Duration
	open    map[uint16]*exchange // of each family
	closed  atomic.Int64         // when the counting ended (UnixNano), 0 before: taking the device down is a change, too
	done    chan struct{}
	err     error // why reading ended; to be read when done
}

// exchange is the last datagram to the kernel, and how its answers come.
type exchange struct {
	table string    // that it changes; nothing if none
	mark  time.Time // when it, or the last answer so far, went by
}

// tapName is the device's.
const tapName = "kube-ipvs-bench"

// NewTap begins to count in the network namespace of the calling thread. Its error says what the kernel lacks.
func NewTap() (*Tap, error) {
	link, err := netlink.NewHandle()
	if err != nil {
		return nil, err
	}
	t := &Tap{link: link, traffic: cell.Traffic{}, writing: map[string]time.Duration{}, open: map[uint16]*exchange{}, done: make(chan struct{}), fd: -1}
	if err = t.addDevice(); err == nil {
		err = t.listen()
	}
	if err != nil {
		t.release()
		return nil, err
	}
	go t.read()
	return t, nil
}

func (t *Tap) addDevice() (err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = tapName
	device := &netlink.GenericLink{LinkAttrs: attrs, LinkType: "nlmon"}
	if err := t.link.LinkAdd(device); err != nil {
		return fmt.Errorf("add a device of kind nlmon: %w", err)
	}
	if t.device, err = t.link.LinkByName(tapName); err != nil {
		return err
	}
	return t.link.LinkSetUp(t.device)
}

func (t *Tap) listen() (err error) {
	if t.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	_ = unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) // what is lost is counted
	wait := unix.NsecToTimeval(int64(50 * time.Millisecond))
	if err := unix.SetsockoptTimeval(t.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return err
	}
	all := uint16(unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8)
	return unix.Bind(t.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: t.device.Attrs().Index})
}

// read takes datagrams until the device is gone, which is an error of the socket, and none is left.
func (t *Tap) read() {
	defer close(t.done)
	buf, control := make([]byte, 1<<20), make([]byte, unix.CmsgSpace(16))
	gone := false
	for {
		n, controls, _, from, err := unix.Recvmsg(t.fd, buf, control, unix.MSG_TRUNC)
		switch {
		case err == nil:
			if from, ok := from.(*unix.SockaddrLinklayer); ok {
				t.take(from, stamp(control[:controls]), buf[:min(n, len(buf))], n)
			}
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENETDOWN):
			gone = true
		case errors.Is(err, unix.EAGAIN):
			if gone {
				return
			}
		default:
			t.err = err
			return
		}
	}
}

// take counts one datagram. Its protocol is the family of netlink (netlink_deliver_tap of net/netlink/af_netlink.c).
func (t *Tap) take(from *unix.SockaddrLinklayer, at time.Time, datagram []byte, length int) {
	family := from.Protocol<<8 | from.Protocol>>8
	closed := t.closed.Load()
	if family == unix.NETLINK_CONNECTOR || closed != 0 && at.UnixNano() > closed {
		return // this program's own
	}
	name := families[family]
	if name == "" {
		name = fmt.Sprintf("family %d", family)
	}
	v := t.traffic[name]
	if toKernel(family, datagram) {
		e := &exchange{mark: at}
		eachMessage(datagram, func(message []byte) {
			v.Messages++
			if table := changing(family, message); table != "" {
				e.table, t.changed = table, at
			}
		})
		t.open[family] = e
		v.Bytes += float64(length)
	} else {
		eachMessage(datagram, func(message []byte) {
			v.FromMessages++
			if e := t.open[family]; e != nil && e.table != "" && binary.NativeEndian.Uint16(message[4:]) == unix.NLMSG_ERROR {
				t.writing[e.table] += at.Sub(e.mark)
				e.mark = at
			}
		})
		v.FromBytes += float64(length)
	}
	t.traffic[name] = v
}

// toKernel tells by its first message where a datagram goes: the kernel takes requests only (netlink_rcv_skb of net/netlink/af_netlink.c), and sends none.
// The kind of the packet does not tell: a copy of what is sent by a device is always outgoing (dev_queue_xmit_nit of net/core/dev.c).
func toKernel(family uint16, datagram []byte) bool {
	return family != unix.NETLINK_KOBJECT_UEVENT && len(datagram) >= unix.NLMSG_HDRLEN && binary.NativeEndian.Uint16(datagram[6:])&unix.NLM_F_REQUEST != 0
}

// stamp is when the kernel copied a datagram, by the control message that comes with it; now, should there be none. Reading may lag behind.
func stamp(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}

var families = map[uint16]string{
	unix.NETLINK_ROUTE: "NETLINK_ROUTE", unix.NETLINK_NETFILTER: "NETLINK_NETFILTER", unix.NETLINK_GENERIC: "NETLINK_GENERIC",
	unix.NETLINK_SOCK_DIAG: "NETLINK_SOCK_DIAG", unix.NETLINK_KOBJECT_UEVENT: "NETLINK_KOBJECT_UEVENT", unix.NETLINK_XFRM: "NETLINK_XFRM",
}

// eachMessage goes through the messages of a datagram (nlmsghdr: its length comes first). One that makes no sense ends it, and counts if it has a head.
func eachMessage(datagram []byte, visit func(message []byte)) {
	for len(datagram) >= unix.NLMSG_HDRLEN {
		length := int(binary.NativeEndian.Uint32(datagram))
		aligned := (length + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
		if length < unix.NLMSG_HDRLEN || aligned >= len(datagram) {
			visit(datagram)
			return
		}
		visit(datagram[:length])
		datagram = datagram[aligned:]
	}
}

// Close ends the counting and returns what there was, and how many datagrams came too fast.
func (t *Tap) Close() (cell.Traffic, int, error) {
	t.closed.Store(time.Now().UnixNano())
	lost, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	err = errors.Join(err, t.link.LinkSetDown(t.device))
	<-t.done
	t.release()
	if err = errors.Join(err, t.err); err != nil {
		return nil, 0, fmt.Errorf("count netlink: %w", err)
	}
	return t.traffic, int(lost.Drops), nil
}

// Changed is when the last message went to the kernel that asks for a change, zero without any. It is known after Close.
func (t *Tap) Changed() time.Time { return t.changed }

// Writing is how long changes took, by table: from each datagram with changes to the last answer (NLMSG_ERROR, which success is, too) to it. Programs
// that write to one family at once blur it, and changes that want no answer are not in it. It is known after Close.
func (t *Tap) Writing() map[string]cell.Seconds {
	out := map[string]cell.Seconds{}
	for table, took := range t.writing {
		out[table] = cell.Took(took)
	}
	return out
}

func (t *Tap) release() {
	if t.fd >= 0 {
		_ = unix.Close(t.fd)
	}
	if t.device != nil {
		_ = t.link.LinkDel(t.device)
	}
	t.link.Close()
}
