package link

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

var sentinels = map[unix.Errno]error{
	unix.EEXIST:        ErrExist,
	unix.ENODEV:        ErrNotExist,
	unix.ENXIO:         ErrNotExist,
	unix.ENOENT:        ErrNotExist,
	unix.EADDRNOTAVAIL: ErrNotExist,
	unix.EBUSY:         ErrBusy,
	unix.EAGAIN:        ErrBusy,
	unix.ENOMEM:        ErrBusy,
	unix.ENOBUFS:       ErrBusy,
	unix.EINTR:         ErrInterrupted,
	unix.EOPNOTSUPP:    ErrUnsupported,
	unix.EAFNOSUPPORT:  ErrUnsupported,
}

// kernelError reads the leading number of an NLMSG_ERROR or NLMSG_DONE message
// and returns nil for an acknowledgement.
func kernelError(payload []byte) error {
	if len(payload) < 4 {
		return nil
	}
	code := int32(nl.NativeEndian().Uint32(payload))
	if code == 0 {
		return nil
	}
	errno := unix.Errno(-code)
	if sentinel, ok := sentinels[errno]; ok {
		return fmt.Errorf("%w (%w)", sentinel, errno)
	}
	return errno
}
