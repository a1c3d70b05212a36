package ipset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// replySize holds any reply: a list message is at most 32 KiB, and a refused
// batch comes back whole (maxMessage plus a header).
const replySize = 64 << 10

// conn is one netlink socket and its sequence numbers. It belongs to one
// goroutine. After any failure to get a reply the socket is closed, and the
// next request opens a new one in the network namespace the conn started in.
type conn struct {
	file    *os.File // nil while dropped
	closed  bool     // permanently
	raw     syscall.RawConn
	netns   netns
	seq     uint32
	timeout time.Duration
	called  func(took time.Duration, err error)
	buf     []byte
}

// dial opens the socket in the current network namespace.
func dial(o Options) (*conn, error) {
	ns, err := currentNetns()
	if err != nil {
		return nil, err
	}
	c := &conn{netns: ns, timeout: o.Timeout, called: o.Called, buf: make([]byte, replySize)}
	if err := c.open(); err != nil {
		ns.close()
		return nil, err
	}
	return c, nil
}

func (c *conn) open() error {
	return c.netns.do(func() error {
		fd, err := socket()
		if err != nil {
			return err
		}
		// A non-blocking descriptor goes to the runtime poller, so that a
		// deadline or a cancelled context wakes a waiting read.
		c.file = os.NewFile(uintptr(fd), "ipset netlink")
		c.raw, err = c.file.SyscallConn()
		return err
	})
}

// socket opens and binds a netfilter netlink socket.
func socket() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, fmt.Errorf("open netlink socket: %w", unsupported(err))
	}
	// Error replies without the request in them: a burst of refusals then fits
	// the receive buffer. Kernels before 4.2 lack the option and do not need it.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return -1, errors.Join(fmt.Errorf("bind netlink socket: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// unsupported marks the answers of a kernel without netfilter netlink.
func unsupported(err error) error {
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// drop closes the socket only. Replies still on their way die with it.
func (c *conn) drop() error {
	if c.file == nil {
		return nil
	}
	err := c.file.Close()
	c.file = nil
	return err
}

// close releases everything; a second time it does nothing.
func (c *conn) close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	return errors.Join(c.drop(), c.netns.close())
}

// reply is one message from the kernel.
type reply struct {
	typ   uint16
	flags uint16
	seq   uint32
	body  []byte // valid until the next read
}

// exchange sends the messages in b, numbered first to c.seq, and calls each
// for every reply to them until it returns done or an error. An error means
// that replies may still be outstanding, so the socket is dropped.
func (c *conn) exchange(ctx context.Context, b []byte, first uint32, each func(reply) (done bool, err error)) (err error) {
	if err := c.ready(ctx); err != nil {
		return err
	}
	start := time.Now()
	stop, err := c.deadline(ctx, start)
	defer stop()
	defer func() { c.called(time.Since(start), err) }()
	defer func() {
		if err != nil {
			err = errors.Join(noReply(ctx, err), c.drop())
		}
	}()
	if err != nil {
		return err
	}
	if err := c.send(b); err != nil {
		return err
	}
	for done := false; !done && err == nil; {
		done, err = c.receive(first, each)
	}
	return err
}

// ready opens a dropped socket again.
func (c *conn) ready(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.closed:
		return os.ErrClosed
	case c.file == nil:
		return c.open()
	}
	return nil
}

// deadline arms the socket with the context's deadline or the default from start on, and
// with its cancellation. stop waits for a cancellation that is under way, lest
// it hit the next request.
func (c *conn) deadline(ctx context.Context, start time.Time) (stop func(), err error) {
	file, when := c.file, start.Add(c.timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(when) {
		when = d
	}
	if err := file.SetDeadline(when); err != nil {
		return func() {}, err
	}
	if ctx.Done() == nil {
		return func() {}, nil
	}
	fired := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = file.SetDeadline(time.Unix(1, 0)) // fails only when the file is closed already
	})
	return func() {
		if !cancel() {
			<-fired
		}
	}, nil
}

// noReply names the reason for a missing reply the way contexts do.
func noReply(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no reply from the kernel: %w", context.DeadlineExceeded)
	}
	return err
}

// send hands all messages to the kernel in one system call, which carries them
// out before it returns.
func (c *conn) send(b []byte) error {
	var err error
	wait := c.raw.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if wait != nil {
		return wait
	}
	return os.NewSyscallError("sendto", err)
}

// receive reads one datagram and passes on its messages that answer the
// current request. Older ones, and datagrams of other processes, are skipped.
func (c *conn) receive(first uint32, each func(reply) (bool, error)) (done bool, err error) {
	b, err := c.read()
	if err != nil {
		return false, err
	}
	for len(b) >= unix.SizeofNlMsghdr && !done {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return false, fmt.Errorf("message of length %d in %d bytes: %w", n, len(b), errMalformed)
		}
		r := reply{
			typ:   binary.NativeEndian.Uint16(b[4:]),
			flags: binary.NativeEndian.Uint16(b[6:]),
			seq:   binary.NativeEndian.Uint32(b[8:]),
			body:  b[unix.SizeofNlMsghdr:n],
		}
		if r.seq-first <= c.seq-first { // modulo 2^32
			if done, err = each(r); err != nil {
				return false, err
			}
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return done, nil
}

// read returns the next datagram from the kernel, or nothing if another process sent it.
func (c *conn) read() ([]byte, error) {
	var n int
	var from unix.Sockaddr
	var err error
	wait := c.raw.Read(func(fd uintptr) bool {
		n, from, err = unix.Recvfrom(int(fd), c.buf, unix.MSG_TRUNC)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if err = errors.Join(wait, os.NewSyscallError("recvfrom", err)); err != nil {
		return nil, err
	}
	if n > len(c.buf) {
		return nil, fmt.Errorf("reply of %d bytes does not fit %d: %w", n, len(c.buf), errMalformed)
	}
	if sa, ok := from.(*unix.SockaddrNetlink); !ok || sa.Pid != 0 {
		return nil, nil
	}
	return c.buf[:n], nil
}
