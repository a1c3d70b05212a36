package link

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const ownNamespace = "/proc/thread-self/ns/net"

// namespace is the network namespace a Handle was made in. A socket belongs to
// the namespace of the thread that opens it, and sockets are opened again later,
// by goroutines that may run elsewhere.
type namespace struct{ file *os.File }

func currentNamespace() (namespace, error) {
	f, err := os.Open(ownNamespace)
	if err != nil {
		return namespace{}, fmt.Errorf("open the current network namespace: %w", err)
	}
	return namespace{file: f}, nil
}

// here reports whether the calling thread is in the namespace.
func (n namespace) here() bool {
	mine, err := n.file.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(ownNamespace)
	return err == nil && os.SameFile(mine, current)
}

// dial opens a routing socket in the namespace that listens to the groups.
func (n namespace) dial(receiveBuffer int, groups uint32) (*conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if n.here() {
		return open(receiveBuffer, groups)
	}
	type result struct {
		c   *conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		// Never unlocked: the runtime ends a thread that was moved, so that no
		// other goroutine finds itself in a foreign namespace.
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{err: fmt.Errorf("enter the network namespace of the link: %w", err)}
			return
		}
		c, err := open(receiveBuffer, groups)
		done <- result{c, err}
	}()
	r := <-done
	return r.c, r.err
}

func (n namespace) close() { _ = n.file.Close() }
