package nftables

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const ownNamespace = "/proc/thread-self/ns/net"

// namespace remembers where New was called: a socket belongs to the namespace of
// the thread that opens it, and sockets are opened later, on any thread.
type namespace struct{ file *os.File }

func currentNamespace() (namespace, error) {
	f, err := os.Open(ownNamespace)
	if err != nil {
		return namespace{}, fmt.Errorf("open the current network namespace: %w", err)
	}
	return namespace{file: f}, nil
}

func (n namespace) close() { _ = n.file.Close() }

// here tells whether the calling thread is in the namespace.
func (n namespace) here() bool {
	mine, err := n.file.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(ownNamespace)
	return err == nil && os.SameFile(mine, current)
}

// dial opens a socket for calls in the namespace.
func (n namespace) dial() (wire, error) {
	return inside(n, func() (wire, error) { return openSocket() })
}

// listen opens a socket for notifications in the namespace.
func (n namespace) listen() (ear, error) {
	return inside(n, func() (ear, error) { return openEar() })
}

// inside runs open on a thread that is in the namespace.
func inside[T any](n namespace, open func() (T, error)) (opened T, err error) {
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

// receiveSize holds the largest datagram of a dump: the kernel fills 32 KiB
// whatever it is offered.
const receiveSize = 64 << 10

// socket is a netfilter netlink socket under the runtime's poller, so that a
// waiting receive costs no thread and ends when the socket is interrupted.
type socket struct {
	file *os.File
	raw  syscall.RawConn
	in   []byte
}

func openSocket() (*socket, error) {
	s, err := bindSocket(func(fd int) error {
		// Only makes the answers shorter: no echo of the request.
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
		return nil
	})
	if err == nil {
		s.in = make([]byte, receiveSize)
	}
	return s, err
}

// bindSocket opens a socket without room to receive into, and has it set up.
func bindSocket(setUp func(fd int) error) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), "nftables netlink")}
	if err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})); err == nil {
		err = setUp(fd)
	}
	if err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *socket) Close() error { return s.file.Close() }

// past is over for any clock.
var past = time.Unix(1, 0)

func (s *socket) Interrupt() { _ = s.file.SetDeadline(past) }

func (s *socket) Send(b []byte) error {
	var failed error
	err := s.raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return failed != unix.EAGAIN
	})
	return firstError(err, failed, "sendto")
}

// Receive takes the next datagram that the kernel, and no other process, sent.
func (s *socket) Receive() ([]byte, error) {
	var n int
	var failed error
	err := s.raw.Read(func(fd uintptr) bool {
		var from unix.Sockaddr
		n, from, failed = unix.Recvfrom(int(fd), s.in, unix.MSG_TRUNC)
		if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid != 0 {
			failed = unix.EAGAIN
		}
		return failed != unix.EAGAIN
	})
	if err := firstError(err, failed, "recvfrom"); err != nil {
		return nil, err
	}
	if n > len(s.in) {
		return nil, fmt.Errorf("%w: datagram of %d bytes", errMalformed, n)
	}
	return s.in[:n], nil
}

func firstError(poll, call error, name string) error {
	if poll != nil {
		return poll
	}
	return os.NewSyscallError(name, call)
}
