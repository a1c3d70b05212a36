package nftables

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Watch calls changed after transactions of any program on tables of any family, and once at the
// beginning, until ctx ends; then it returns nil. It subscribes before the first call, and what a
// call reads is at least as new as what it is called for, so nothing is missed. All transactions
// while a call runs cause one more call. A call may be without reason. The calls are made on the
// goroutine of Watch.
//
// The programs that wrote since the last call are listed in the order of their last transactions;
// at the beginning there are none. The list is the call's own.
//
// An error means that the subscription failed, fs.ErrPermission that it takes CAP_NET_ADMIN; Watch
// may be called again.
func (h *Handle) Watch(ctx context.Context, changed func(by []Writer)) error {
	if ctx.Err() != nil {
		return nil
	}
	e, err := h.listen()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return fmt.Errorf("watch nftables: open netlink socket: %w", err)
	}
	defer e.Close()
	defer context.AfterFunc(ctx, e.Interrupt)()
	for by := []Writer(nil); ; {
		changed(by)
		var err error
		by, err = e.Await()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch nftables: %w", err)
		}
	}
}

const (
	// earRoom is the size of the kernel's buffer for a listener, in bytes: some ten notifications.
	// It tells by ENOBUFS that there were more.
	earRoom = 8 << 10
	// drainLimit bounds one Await while another program writes without a pause; remaining
	// notifications end the next one.
	drainLimit = 64
)

// earSocket is an ear.
type earSocket struct{ *nfnetlink.Conn }

func openEar() (ear, error) {
	c, err := nfnetlink.Bind(noticeSize, func(fd int) error {
		// Both only make notifications cheaper: without them more come, to the same end.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, earRoom)
		_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(onlyGenerations)), Filter: &onlyGenerations[0]})
		// Unlike the groups of bind this fails on a kernel that has no such group.
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group))
	})
	if err != nil {
		return nil, err
	}
	return earSocket{c}, nil
}

// onlyGenerations passes datagrams that begin with a new generation. The kernel asks
// it before it looks whether there is room (do_one_broadcast in af_netlink.c), so what
// does not pass takes none.
var onlyGenerations = [...]unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4}, // nlmsg_type
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(loaded(newGen)), Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
}

// loaded is a number of a netlink header as a filter loads it: as if it were in network
// byte order.
func loaded(n uint16) uint16 { return binary.BigEndian.Uint16(nfnetlink.Native.AppendUint16(nil, n)) }

// noticeSize holds a notification: three attributes behind the headers, 56 bytes.
const noticeSize = 256

// Await implements ear.
func (s earSocket) Await() (by []Writer, err error) {
	var failed error
	var b [noticeSize]byte
	err = s.Raw.Read(func(fd uintptr) bool {
		heard := false
		for range drainLimit {
			var n int
			n, failed = unix.Read(int(fd), b[:])
			switch failed {
			case nil:
				heard, by = true, addWriter(by, noticed(b[:n]))
			case unix.ENOBUFS: // more than there is room for
				heard, failed, by = true, nil, addWriter(by, Writer{})
			case unix.EINTR:
			case unix.EAGAIN:
				failed = nil
				return heard
			default:
				return true
			}
		}
		return true
	})
	return by, cmp.Or(err, os.NewSyscallError("read", failed))
}

// noticed returns who sent a notification; the zero Writer where it does not say.
func noticed(b []byte) Writer {
	w, err := readWriter(b)
	if err != nil {
		return Writer{}
	}
	return w
}
