package vserver

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// New opens the IPVS tables of the network namespace that the calling thread
// is in; lock the goroutine to its thread before entering another one. It
// fails with ErrUnsupported where the kernel has no IPVS. It loads no module,
// although asking for the family lets the kernel load one by itself.
func New(log *zap.Logger, opts Options) (*Handle, error) {
	ns, err := os.Open(currentNamespace)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return newHandle(log, opts, &namespace{file: ns, patience: 2 * opts.Defaults().CallTimeout})
}

const currentNamespace = "/proc/thread-self/ns/net"

// Socket buffers in bytes: one for a chunk of messages, the other for the
// refusal of each. The kernel bounds neither for a privileged process.
const (
	sendBuffer    = 1 << 20
	receiveBuffer = 4 << 20
)

// namespace is the one in which New was called, since a socket that is opened again
// after a time-out is opened on any thread.
type namespace struct {
	file     *os.File
	patience time.Duration // deadline of calls on its sockets: when it ends, their caller has given up
}

func (n *namespace) Close() error { return n.file.Close() }

// within changes the thread's namespace only if it has to: setns needs more
// privilege than IPVS itself.
func (n *namespace) within(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	current, err := os.Open(currentNamespace)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer current.Close()
	if sameFile(current, n.file) {
		return f()
	}
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	failed := f()
	if err := unix.Setns(int(current.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		return fmt.Errorf("leave network namespace: %w", err)
	}
	return failed
}

func sameFile(a, b *os.File) bool {
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func (n *namespace) open() (w wire, err error) {
	err = n.within(func() error {
		w, err = openSocket(n.patience)
		return err
	})
	return w, err
}

// listFile follows the thread that opens it, and only that: a read of it gives the
// namespace it was opened in.
const listFile = "/proc/thread-self/net/ip_vs"

func (n *namespace) list() (text io.ReadCloser, err error) {
	err = n.within(func() error {
		text, err = os.Open(listFile)
		return err
	})
	return text, err
}

// socket is a generic netlink socket that blocks, for no longer than its patience. The kernel
// stores the answer before the send returns, so a receive does not wait. Under the runtime's poller
// each answer would also wake another thread without work, which took a seventh of the cost of a
// single change.
type socket struct {
	file  *os.File
	raw   syscall.RawConn
	port  uint32
	limit int
}

func openSocket(patience time.Duration) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), "ipvs netlink")}
	if err := s.setUp(fd, patience); err != nil {
		_ = s.file.Close()
		return nil, err
	}
	return s, nil
}

func (s *socket) setUp(fd int, patience time.Duration) error {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	if address, ok := name.(*unix.SockaddrNetlink); ok {
		s.port = address.Pid
	}
	wait := unix.NsecToTimeval(int64(patience))
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &wait); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
	setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer)
	// Both only improve the answers: no echo of the request, a text with it.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	s.limit = size - 32 // netlink_sendmsg's own condition
	s.raw, err = s.file.SyscallConn()
	return err
}

// setBuffer settles for what an unprivileged process gets: chunks then follow
// the smaller limit.
func setBuffer(fd, force, plain, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size)
	}
}

func (s *socket) PortID() uint32 { return s.port }
func (s *socket) SendLimit() int { return s.limit }
func (s *socket) Close() error   { return s.file.Close() }

func (s *socket) Send(b []byte) error {
	var failed error
	err := s.raw.Write(func(fd uintptr) bool {
		for failed = unix.EINTR; failed == unix.EINTR; {
			failed = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		}
		return true
	})
	return firstError(err, failed, "sendto")
}

// Receive takes the next datagram that the kernel, and no other process, sent.
func (s *socket) Receive(b []byte) (n int, err error) {
	var failed error
	err = s.raw.Read(func(fd uintptr) bool {
		n, failed = fromKernel(int(fd), b)
		return true
	})
	if err := firstError(err, failed, "recvfrom"); err != nil {
		return 0, err
	}
	if n > len(b) {
		return 0, fmt.Errorf("%w: datagram of %d bytes", errMalformed, n)
	}
	return n, nil
}

// fromKernel skips messages of other senders, and signals: after a signal, the kernel does not
// restart a call with a time-out.
func fromKernel(fd int, b []byte) (int, error) {
	for {
		n, from, err := unix.Recvfrom(fd, b, unix.MSG_TRUNC)
		if err == unix.EINTR {
			continue
		}
		if sender, ok := from.(*unix.SockaddrNetlink); err != nil || !ok || sender.Pid == 0 {
			return n, err
		}
	}
}

func firstError(file, call error, name string) error {
	if file != nil {
		return file
	}
	return os.NewSyscallError(name, call)
}
