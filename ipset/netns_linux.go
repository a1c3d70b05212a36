package ipset

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// netns is a network namespace that is kept open, so that a socket opened again later, on
// whatever thread the goroutine runs then, is in the same one.
type netns struct {
	fd       int
	dev, ino uint64
}

const netnsPath = "/proc/thread-self/ns/net"

func currentNetns() (netns, error) {
	fd, err := unix.Open(netnsPath, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return netns{}, fmt.Errorf("open %s: %w", netnsPath, err)
	}
	dev, ino, err := inode(fd)
	if err != nil {
		return netns{}, errors.Join(err, unix.Close(fd))
	}
	return netns{fd, dev, ino}, nil
}

func inode(fd int) (dev, ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, 0, fmt.Errorf("stat network namespace: %w", err)
	}
	return uint64(st.Dev), st.Ino, nil //nolint:unconvert // Dev is narrower on other architectures
}

// do runs f with the thread in the namespace. It changes the namespace only if the thread is in
// another one, which needs CAP_SYS_ADMIN. A thread that cannot be moved back stays locked, so that
// the runtime ends it with the goroutine.
func (ns netns) do(f func() error) error {
	runtime.LockOSThread()
	here, err := currentNetns()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { _ = here.close() }()
	if here.dev == ns.dev && here.ino == ns.ino {
		defer runtime.UnlockOSThread()
		return f()
	}
	if err := unix.Setns(ns.fd, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err = f()
	if back := unix.Setns(here.fd, unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

func (ns netns) close() error { return os.NewSyscallError("close", unix.Close(ns.fd)) }
