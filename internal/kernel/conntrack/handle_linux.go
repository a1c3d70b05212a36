package conntrack

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// New opens the table of the network namespace that the calling thread is in; lock
// the goroutine to its thread before entering another one. It fails with
// ErrUnsupported where the kernel has no nf_conntrack_netlink. It loads no module,
// although asking lets the kernel load that one by itself.
func New(log *zap.Logger, opts Options) (*Handle, error) {
	file, err := os.Open(threadNamespace)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return newHandle(log, opts, home{file})
}

const threadNamespace = "/proc/thread-self/ns/net"

// home is the namespace that New was called in. A socket is opened again on any
// thread.
type home struct{ *os.File }

func (n home) open() (wire, error) {
	type opened struct {
		s   *socket
		err error
	}
	done := make(chan opened, 1)
	go func() {
		runtime.LockOSThread()
		moved, err := n.enter()
		if !moved {
			runtime.UnlockOSThread() // else the thread ends with this goroutine
		}
		var s *socket
		if err == nil {
			s, err = openSocket()
		}
		done <- opened{s, err}
	}()
	o := <-done
	if o.err != nil {
		return nil, o.err
	}
	return o.s, nil
}

// enter moves the thread if it is elsewhere: that needs more privilege than the
// table does.
func (n home) enter() (moved bool, err error) {
	ours, err := n.Stat()
	if err != nil {
		return false, fmt.Errorf("look at network namespace: %w", err)
	}
	if theirs, err := os.Stat(threadNamespace); err == nil && os.SameFile(ours, theirs) {
		return false, nil
	}
	if err := unix.Setns(int(n.Fd()), unix.CLONE_NEWNET); err != nil {
		return false, fmt.Errorf("enter network namespace: %w", err)
	}
	return true, nil
}

// socket is a netlink socket under the runtime's poller, so that a waiting receive
// costs no thread and ends when the socket is closed.
type socket struct {
	*os.File
	raw syscall.RawConn
}

// The sizes of a batch of deletions and of the answers to it, in bytes.
const (
	sendBuffer    = 512 << 10
	receiveBuffer = 2 << 20
)

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, fmt.Errorf("open netfilter socket: %w (%w)", ErrUnsupported, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open netfilter socket: %w", err)
	}
	s := &socket{File: os.NewFile(uintptr(fd), "nfnetlink")}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		s.raw, err = s.SyscallConn()
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("bind netfilter socket: %w", err)
	}
	enlarge(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
	enlarge(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer)
	// A refusal comes back without a copy of the request: more of them fit.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	return s, nil
}

// enlarge settles for what an unprivileged process gets.
func enlarge(fd, force, plain, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size)
	}
}

// Send puts messages to the kernel, which has worked through them when it returns.
func (s *socket) Send(b []byte) error {
	var failed error
	err := s.raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return failed != unix.EAGAIN
	})
	return errors.Join(err, os.NewSyscallError("sendto", failed))
}

// Receive takes the next datagram that the kernel, and no other process, sent.
func (s *socket) Receive(b []byte) (n int, err error) {
	var failed error
	err = s.raw.Read(func(fd uintptr) bool {
		var from unix.Sockaddr
		var flags int
		n, _, flags, from, failed = unix.Recvmsg(int(fd), b, nil, 0)
		if sender, ok := from.(*unix.SockaddrNetlink); ok && failed == nil && sender.Pid != 0 {
			failed = unix.EAGAIN
		}
		if failed == nil && flags&unix.MSG_TRUNC != 0 {
			failed = unix.EMSGSIZE
		}
		return failed != unix.EAGAIN
	})
	return n, errors.Join(err, os.NewSyscallError("recvmsg", failed))
}
