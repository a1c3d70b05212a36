package vserver

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Errors a caller may test for with errors.Is. Texts carry the operation, the
// key and the kernel's own word.
var (
	// ErrExist: the row is there and could not be taken over.
	ErrExist = netkey.ErrExist
	// ErrNotExist: the row, or the server a destination belongs to, is missing.
	ErrNotExist = netkey.ErrNotExist
	// ErrBusy: the kernel is occupied with another request of this kind, or holds
	// on to too many calls that were abandoned; in that case nothing was sent.
	ErrBusy = netkey.ErrBusy
	// ErrUnsupported: this kernel has no IPVS, no such scheduler, or lacks the
	// address family.
	ErrUnsupported = errors.New("not supported by the kernel")
	// ErrNoStaging: this kernel makes no server without a scheduler. It is an
	// ErrUnsupported too.
	ErrNoStaging = fmt.Errorf("staging %w", ErrUnsupported)
	// ErrInterrupted: the table changed under a dump, again and again.
	ErrInterrupted = errors.New("table changed while it was read")
	// ErrUnknown: the request was sent and its answer lost (deadline, receive
	// buffer overrun). The table has to be read to know; a call that is stuck in
	// the kernel may even take effect later than that.
	ErrUnknown = errors.New("outcome unknown")
	// ErrInvalid: the row cannot be expressed to the kernel; it was not sent.
	ErrInvalid = errors.New("invalid row")
)

// answer is the kernel's verdict on one message.
type answer struct {
	known bool // false: no verdict arrived
	errno syscall.Errno
	text  string // the extended acknowledgement's message, mostly empty
}

// fault puts an answer into the errors of the package, keeping the kernel's in the text.
func (a answer) fault() error {
	sentinel := sentinelOf(a.errno)
	switch {
	case sentinel == nil && a.text == "":
		return a.errno
	case sentinel == nil:
		return fmt.Errorf("%w: %s", a.errno, a.text)
	case a.text == "":
		return fmt.Errorf("%w (%s)", sentinel, a.errno.Error())
	default:
		return fmt.Errorf("%w (%s: %s)", sentinel, a.errno.Error(), a.text)
	}
}

func sentinelOf(errno syscall.Errno) error {
	switch errno {
	case syscall.EEXIST:
		return ErrExist
	case syscall.ENOENT, syscall.ESRCH:
		return ErrNotExist
	case syscall.EBUSY:
		return ErrBusy
	case syscall.EAFNOSUPPORT, syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT:
		return ErrUnsupported
	default:
		return nil
	}
}
