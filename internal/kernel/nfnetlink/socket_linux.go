package nfnetlink

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const ownNamespace = "/proc/thread-self/ns/net"

// Namespace is a network namespace. A socket belongs to the namespace of the thread that opens it;
// sockets are opened again later, on any thread.
type Namespace struct{ file *os.File }

// CurrentNamespace returns the namespace of the calling thread.
func CurrentNamespace() (Namespace, error) {
	f, err := os.Open(ownNamespace)
	if err != nil {
		return Namespace{}, fmt.Errorf("open the current network namespace: %w", err)
	}
	return Namespace{file: f}, nil
}

// Close releases the namespace.
func (n Namespace) Close() { _ = n.file.Close() }

// here reports whether the calling thread is in the namespace.
func (n Namespace) here() bool {
	mine, err := n.file.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(ownNamespace)
	return err == nil && os.SameFile(mine, current)
}

// Inside runs open on a thread that is in the namespace.
func Inside[T any](n Namespace, open func() (T, error)) (opened T, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if n.here() {
		return open()
	}
	current, err := os.Open(ownNamespace)
	if err != nil {
		return opened, fmt.Errorf("open the current network namespace: %w", err)
	}
	defer current.Close()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return opened, fmt.Errorf("enter the network namespace of the tables: %w", err)
	}
	opened, failed := open()
	if err := unix.Setns(int(current.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		return opened, fmt.Errorf("leave the network namespace of the tables: %w", err)
	}
	return opened, failed
}

// receiveSize holds the largest datagram of a dump: the kernel fills 32 KiB, however large the
// buffer is.
const receiveSize = 64 << 10

// Conn is a Socket under the runtime's poller: a Receive that waits costs no thread and ends when
// the socket is interrupted.
type Conn struct {
	Raw  syscall.RawConn
	file *os.File
	in   []byte
}

// Open opens a socket for calls, with buffers of so many bytes for requests and answers where that
// is more than the kernel's default; 0 keeps the default.
func Open(buffer int) (*Conn, error) {
	return Bind(receiveSize, func(fd int) error {
		// The first makes the answers shorter, without the request in them; the second adds which
		// attribute of a request was refused. Kernels that lack them answer as well.
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
		if buffer > 0 { // without the capability, a request that is too large is refused as such
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer)
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
		}
		return nil
	})
}

// Bind opens a socket that receives datagrams of at most size bytes, and sets it up.
func Bind(size int, setUp func(fd int) error) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	c := &Conn{file: os.NewFile(uintptr(fd), "netfilter netlink"), in: make([]byte, size)}
	if err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})); err == nil {
		err = setUp(fd)
	}
	if err == nil {
		c.Raw, err = c.file.SyscallConn()
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Port returns the port that the kernel gave the socket: notifications of its transactions carry it.
func (c *Conn) Port() (port uint32, err error) {
	var failed error
	err = c.Raw.Control(func(fd uintptr) {
		var name unix.Sockaddr
		if name, failed = unix.Getsockname(int(fd)); failed == nil {
			port = name.(*unix.SockaddrNetlink).Pid
		}
	})
	return port, firstError(err, failed, "getsockname")
}

// Close closes the socket.
func (c *Conn) Close() error { return c.file.Close() }

// past is over for any clock.
var past = time.Unix(1, 0)

// Interrupt implements Socket.
func (c *Conn) Interrupt() { _ = c.file.SetDeadline(past) }

// Send implements Socket.
func (c *Conn) Send(b []byte) error {
	var failed error
	err := c.Raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return failed != unix.EAGAIN
	})
	return firstError(err, failed, "sendto")
}

// Receive takes the next datagram that the kernel, and no other process, sent.
func (c *Conn) Receive() ([]byte, error) {
	var n int
	var failed error
	err := c.Raw.Read(func(fd uintptr) bool {
		var from unix.Sockaddr
		n, from, failed = unix.Recvfrom(int(fd), c.in, unix.MSG_TRUNC)
		if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid != 0 {
			failed = unix.EAGAIN
		}
		return failed != unix.EAGAIN
	})
	if err := firstError(err, failed, "recvfrom"); err != nil {
		return nil, err
	}
	if n > len(c.in) {
		return nil, fmt.Errorf("%w: datagram of %d bytes", ErrMalformed, n)
	}
	return c.in[:n], nil
}

func firstError(poll, call error, name string) error {
	if poll != nil {
		return poll
	}
	return os.NewSyscallError(name, call)
}
