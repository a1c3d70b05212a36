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

// dial opens a socket in the namespace.
func (n namespace) dial() (wire, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if n.here() {
		return openSocket()
	}
	current, err := os.Open(ownNamespace)
	if err != nil {
		return nil, fmt.Errorf("open the current network namespace: %w", err)
	}
	defer current.Close()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter the network namespace of the tables: %w", err)
	}
	s, failed := openSocket()
	if err := unix.Setns(int(current.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		return nil, fmt.Errorf("leave the network namespace of the tables: %w", err)
	}
	return s, failed
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
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), "nftables netlink"), in: make([]byte, receiveSize)}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = s.Close()
		return nil, os.NewSyscallError("bind", err)
	}
	// Only makes the answers shorter: no echo of the request.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	if s.raw, err = s.file.SyscallConn(); err != nil {
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
