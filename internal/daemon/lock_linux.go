package daemon

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// flock takes the lock of an open file, or fails with ErrRunning at once.
func flock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrRunning
	}
	return err
}

// taken reports whether a name could not be bound because another process has it.
func taken(err error) bool { return errors.Is(err, unix.EADDRINUSE) }

// peer returns the process that listens at the other end, as the kernel reports it (SO_PEERCRED,
// unix(7)). The pid is that in the pid namespace of this process, 0 without one; the user is that
// at the time when it began to listen.
func peer(conn *net.UnixConn) (pid, uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	asked := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(asked, err); err != nil {
		return 0, 0, err
	}
	return int(cred.Pid), int(cred.Uid), nil
}

// mayWrite reports whether this process may change the network of its namespace.
func mayWrite() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return err
	}
	if caps[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return unix.EPERM
	}
	return nil
}
