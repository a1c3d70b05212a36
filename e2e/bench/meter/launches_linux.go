package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Of include/uapi/linux/cn_proc.h and connector.h: the group of process events, what may be asked, and what happens.
const (
	cnIdxProc, cnValProc = 1, 1
	procListen           = 1
	procNone, procFork   = 0x00000000, 0x00000001
	procExit             = 0x80000000

	headerLen = unix.NLMSG_HDRLEN + 20 // nlmsghdr and cn_msg, before each event
)

// launches counts the processes that our children launch, theirs too, by the kernel's process events. Threads do not count.
type launches struct {
	fd      int
	stop    chan struct{} // closed to end reading
	stopped chan struct{} // closed when reading has ended

	mu    sync.Mutex
	trees map[int]*int // how many were launched below a child of ours, by the child's number
	of    map[int]int  // the child of ours that a living process descends from
	lost  bool         // events came faster than they were read
	ended error
}

// errNoEvents says that the kernel does not tell: it was built without, or this is not its first namespace of processes.
var errNoEvents = errors.New("the kernel does not tell of processes")

// newLaunches begins to listen. Only the first network namespace hears of processes, so it goes there.
func newLaunches() (*launches, error) {
	l := &launches{stop: make(chan struct{}), stopped: make(chan struct{}), trees: map[int]*int{}, of: map[int]int{}}
	if here := l.listen(); here != nil {
		err := onThread(func() error {
			if err := enter("/proc/1/ns/net"); err != nil {
				return err
			}
			return l.listen()
		})
		if err != nil {
			return nil, fmt.Errorf("%w: %w; %w", errNoEvents, here, err)
		}
	}
	go l.read()
	return l, nil
}

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

func enter(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
}

// answerTime is how long the kernel has to confirm; where it does not tell, it does not say so. It is also how long a reader may sleep before
// it looks whether it is to end: closing a socket wakes nobody.
const answerTime = 500 * time.Millisecond

func (l *launches) listen() (err error) {
	if l.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_CONNECTOR); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(l.fd)
		}
	}()
	if err := unix.Bind(l.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: cnIdxProc}); err != nil {
		return err
	}
	_ = unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20) // what is lost is noticed
	wait := unix.NsecToTimeval(int64(answerTime))
	if err := unix.SetsockoptTimeval(l.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return err
	}
	if err := unix.Sendto(l.fd, subscription(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	return l.confirmed()
}

// subscription is a message that asks for events: nlmsghdr, cn_msg, and the one word that says so.
func subscription() []byte {
	b := make([]byte, headerLen+4)
	native := binary.NativeEndian
	native.PutUint32(b, uint32(len(b)))
	native.PutUint16(b[4:], unix.NLMSG_DONE)
	native.PutUint32(b[16:], cnIdxProc)
	native.PutUint32(b[20:], cnValProc)
	native.PutUint16(b[32:], 4)
	native.PutUint32(b[headerLen:], procListen)
	return b
}

// confirmed waits for the kernel's word that it will tell; events of others may come before it.
func (l *launches) confirmed() error {
	buf := make([]byte, 4096)
	for deadline := time.Now().Add(answerTime); ; {
		n, _, err := unix.Recvfrom(l.fd, buf, 0)
		if err == nil && time.Now().After(deadline) {
			err = unix.ETIMEDOUT
		}
		if err != nil {
			return fmt.Errorf("wait for the confirmation: %w", err)
		}
		what, a, ok := event(buf[:n])
		if !ok || what != procNone {
			continue
		}
		if a[0] != 0 {
			return unix.Errno(a[0])
		}
		return nil
	}
}

// event reads a message: what happened, and the four words that say to whom.
func event(b []byte) (what uint32, about [4]uint32, ok bool) {
	native := binary.NativeEndian
	if len(b) < headerLen+32 || native.Uint32(b[16:]) != cnIdxProc {
		return 0, about, false
	}
	b = b[headerLen:]
	for i := range about {
		about[i] = native.Uint32(b[16+4*i:])
	}
	return native.Uint32(b), about, true
}

// read takes events until it is to stop.
func (l *launches) read() {
	defer close(l.stopped)
	buf := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(l.fd, buf, 0)
		select {
		case <-l.stop:
			return
		default:
		}
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOBUFS):
			l.mu.Lock()
			l.lost = true
			l.mu.Unlock()
			continue
		case err != nil:
			l.mu.Lock()
			l.ended = err
			l.mu.Unlock()
			return
		}
		if what, about, ok := event(buf[:n]); ok {
			l.take(what, about)
		}
	}
}

// take keeps who descends from whom. Of fork these are the parent's thread and process, the child's thread and process; of exit the thread
// and the process.
func (l *launches) take(what uint32, about [4]uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch what {
	case procFork:
		parent, thread, child := int(about[1]), about[2], int(about[3])
		if int(thread) != child {
			return // a thread
		}
		if parent == os.Getpid() {
			l.trees[child], l.of[child] = new(int), child
		} else if root, known := l.of[parent]; known {
			l.of[child] = root
			*l.trees[root]++
		}
	case procExit:
		if process := int(about[1]); about[0] == about[1] {
			delete(l.of, process)
		}
	}
}

// below is how many processes were launched below a child of ours.
func (l *launches) below(child int) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tree := l.trees[child]
	switch {
	case l.ended != nil:
		return 0, fmt.Errorf("read process events: %w", l.ended)
	case l.lost:
		return 0, errors.New("process events were lost")
	case tree == nil:
		return 0, nil // its birth has not been read yet
	}
	return *tree, nil
}

// close ends listening. The socket is closed when nobody reads it any more: its number is the next file's.
func (l *launches) close() {
	close(l.stop)
	<-l.stopped
	_ = unix.Close(l.fd)
}
