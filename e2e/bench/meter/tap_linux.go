package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
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
	done    chan struct{}
	err     error // why reading ended; to be read when done
}

// tapName is the device's.
const tapName = "kube-ipvs-bench"

// NewTap begins to count in the network namespace of the calling thread. Its error says what the kernel lacks.
func NewTap() (*Tap, error) {
	link, err := netlink.NewHandle()
	if err != nil {
		return nil, err
	}
	t := &Tap{link: link, traffic: cell.Traffic{}, done: make(chan struct{}), fd: -1}
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
	all := uint16(unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8)
	return unix.Bind(t.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: t.device.Attrs().Index})
}

// read takes datagrams until the device is gone, which is an error of the socket, and none is left.
func (t *Tap) read() {
	defer close(t.done)
	buf := make([]byte, 1<<20)
	gone := false
	for {
		n, from, err := unix.Recvfrom(t.fd, buf, unix.MSG_TRUNC)
		switch {
		case err == nil:
			if from, ok := from.(*unix.SockaddrLinklayer); ok {
				t.take(from, buf[:min(n, len(buf))], n)
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

// take counts one datagram. Its protocol is the family of netlink, its kind whether it goes to the kernel (drivers/net/nlmon.c, and
// netlink_deliver_tap of net/netlink/af_netlink.c).
func (t *Tap) take(from *unix.SockaddrLinklayer, datagram []byte, length int) {
	family := from.Protocol<<8 | from.Protocol>>8
	if family == unix.NETLINK_CONNECTOR {
		return // this program's own
	}
	name := families[family]
	if name == "" {
		name = fmt.Sprintf("family %d", family)
	}
	v := t.traffic[name]
	if from.Pkttype == unix.PACKET_KERNEL {
		v.Messages += float64(messagesIn(datagram))
		v.Bytes += float64(length)
	} else {
		v.FromMessages += float64(messagesIn(datagram))
		v.FromBytes += float64(length)
	}
	t.traffic[name] = v
}

var families = map[uint16]string{
	unix.NETLINK_ROUTE: "NETLINK_ROUTE", unix.NETLINK_NETFILTER: "NETLINK_NETFILTER", unix.NETLINK_GENERIC: "NETLINK_GENERIC",
	unix.NETLINK_SOCK_DIAG: "NETLINK_SOCK_DIAG", unix.NETLINK_KOBJECT_UEVENT: "NETLINK_KOBJECT_UEVENT", unix.NETLINK_XFRM: "NETLINK_XFRM",
}

// messagesIn counts the messages of a datagram (nlmsghdr: its length comes first). One that makes no sense ends it and counts.
func messagesIn(datagram []byte) int {
	n := 0
	for len(datagram) >= unix.NLMSG_HDRLEN {
		n++
		length := int(binary.NativeEndian.Uint32(datagram))
		aligned := (length + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
		if length < unix.NLMSG_HDRLEN || aligned >= len(datagram) {
			break
		}
		datagram = datagram[aligned:]
	}
	return n
}

// Close ends the counting and returns what there was, and how many datagrams came too fast.
func (t *Tap) Close() (cell.Traffic, int, error) {
	lost, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	err = errors.Join(err, t.link.LinkSetDown(t.device))
	<-t.done
	t.release()
	if err = errors.Join(err, t.err); err != nil {
		return nil, 0, fmt.Errorf("count netlink: %w", err)
	}
	return t.traffic, int(lost.Drops), nil
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
