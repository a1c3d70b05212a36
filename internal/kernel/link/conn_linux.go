package link

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// receiveSize is the most the kernel puts into one datagram of a dump.
const receiveSize = 32 << 10

// conn is one routing socket. It serves one call at a time; a conn that is
// broken has to be replaced, since late answers may still arrive on it.
type conn struct {
	file   *os.File
	raw    syscall.RawConn
	seq    uint32
	buf    []byte
	broken bool // set by send and receive; read when the call has returned
}

// open makes a socket in the namespace of the calling thread.
func open(receiveBuffer int, groups uint32) (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open routing socket: %w", err)
	}
	tuneSocket(fd, receiveBuffer)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind routing socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "rtnetlink")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("use routing socket: %w", err)
	}
	return &conn{file: file, raw: raw, buf: make([]byte, receiveSize)}, nil
}

// tuneSocket asks for what helps; an old kernel that lacks one of them still works.
func tuneSocket(fd, receiveBuffer int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	// Errors come back without a copy of the request: more of them fit.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
}

// strict has the kernel filter dumps by the fields of the request (NETLINK_GET_STRICT_CHK,
// since Linux 4.20). Not all requests of ours are made for that, so it is off otherwise.
func (c *conn) strict(on bool) {
	value := 0
	if on {
		value = 1
	}
	_ = c.raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, value)
	})
}

func (c *conn) close() { _ = c.file.Close() }

// interrupt makes a call that waits for an answer return at once.
func (c *conn) interrupt() { _ = c.file.SetDeadline(time.Unix(1, 0)) }

// batch sends all requests with one system call and returns one error for each.
func (c *conn) batch(reqs []*nl.NetlinkRequest) ([]error, error) {
	return c.exchange(len(reqs), nil, func(out []byte, i int, seq uint32, flags uint16) []byte {
		reqs[i].Seq = seq
		reqs[i].Flags |= flags
		return append(out, reqs[i].Serialize()...)
	})
}

// bind is batch for addresses of a link, of which there may be thousands.
func (c *conn) bind(changes []Change, index uint32) ([]error, error) {
	return c.exchange(len(changes), make([]byte, 0, len(changes)*maxChange), func(out []byte, i int, seq uint32, flags uint16) []byte {
		return appendChange(out, changes[i], index, seq, flags)
	})
}

// exchange packs n requests into out, sends them with one system call and returns one error for
// each. Only the last one asks for an acknowledgement. The kernel handles requests in order and
// always answers failing ones, so a row without an answer has succeeded once the last one is
// answered. The second result is a failure of the socket.
func (c *conn) exchange(n int, out []byte, pack func(out []byte, i int, seq uint32, flags uint16) []byte) ([]error, error) {
	first := c.seq + 1
	for i := range n {
		flags := uint16(unix.NLM_F_REQUEST)
		if i == n-1 {
			flags |= unix.NLM_F_ACK
		}
		c.seq++
		out = pack(out, i, c.seq, flags)
	}
	if err := c.send(out); err != nil {
		return nil, err
	}
	errs := make([]error, n)
	for answered := false; !answered; {
		err := c.receive(func(m syscall.NetlinkMessage) {
			i := int64(m.Header.Seq) - int64(first)
			if m.Header.Type != unix.NLMSG_ERROR || i < 0 || i >= int64(len(errs)) {
				return
			}
			errs[i] = kernelError(m.Data)
			answered = answered || i == int64(len(errs)-1)
		})
		if err != nil {
			return nil, err
		}
	}
	return errs, nil
}

// query sends one request and hands every answer to each, which must not keep
// it. A dump that the kernel marks as inconsistent is read to its end, since the
// socket refuses another one before that, and then answered by ErrInterrupted.
func (c *conn) query(req *nl.NetlinkRequest, each func(syscall.NetlinkMessage)) error {
	c.seq++
	req.Seq = c.seq
	req.Flags |= unix.NLM_F_REQUEST
	if err := c.send(req.Serialize()); err != nil {
		return err
	}
	var answer error
	interrupted, done := false, false
	for !done {
		err := c.receive(func(m syscall.NetlinkMessage) {
			if m.Header.Seq != c.seq || done {
				return
			}
			interrupted = interrupted || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			switch m.Header.Type {
			case unix.NLMSG_ERROR, unix.NLMSG_DONE:
				answer, done = kernelError(m.Data), true
			default:
				each(m)
				done = m.Header.Flags&unix.NLM_F_MULTI == 0
			}
		})
		if err != nil {
			return err
		}
	}
	if answer == nil && interrupted {
		return fmt.Errorf("the list changed while it was read: %w", ErrInterrupted)
	}
	return answer
}

func (c *conn) send(b []byte) error {
	var err error
	waitErr := c.raw.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(err, unix.EAGAIN)
	})
	return c.socketError("send to the kernel", err, waitErr)
}

// receive waits for one datagram and hands over its messages.
func (c *conn) receive(each func(syscall.NetlinkMessage)) error {
	var (
		n, flags int
		from     unix.Sockaddr
		err      error
	)
	waitErr := c.raw.Read(func(fd uintptr) bool {
		n, _, flags, from, err = unix.Recvmsg(int(fd), c.buf, nil, 0)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err := c.socketError("receive from the kernel", err, waitErr); err != nil {
		return err
	}
	if flags&unix.MSG_TRUNC != 0 {
		return c.socketError("receive from the kernel", unix.EMSGSIZE, nil)
	}
	// Any process may send to any netlink socket; only the kernel is number 0.
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return nil
	}
	messages, err := parseMessages(c.buf[:n])
	if err != nil {
		return c.socketError("read a message of the kernel", err, nil)
	}
	for _, m := range messages {
		each(m)
	}
	return nil
}

// socketError marks the socket as broken. The outcome of the pending operation is unknown, which
// ErrBusy means.
func (c *conn) socketError(doing string, errs ...error) error {
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	c.broken = true
	return fmt.Errorf("%s: %w: %w", doing, ErrBusy, err)
}
