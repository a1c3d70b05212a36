package vserver

import (
	"fmt"
	"syscall"
)

// settle relies on the kernel telling a missing server (ESRCH) from a missing
// scheduler (ENOENT), ip_vs_genl_set_cmd and ip_vs_add_service.
func (c ServerChange) settle(op Op, a answer) (next Op, again bool, err error) {
	switch {
	case op == Add && a.errno == syscall.EEXIST:
		return Update, true, nil
	case op == Update && a.errno == syscall.ESRCH:
		return Add, true, nil
	case op == Delete && missing(a.errno):
		return op, false, nil
	case a.errno == syscall.ENOENT:
		return op, false, c.unscheduled(op, a.errno)
	default:
		return op, false, a.fault()
	}
}

// unscheduled is the refusal of a scheduler's name.
func (c ServerChange) unscheduled(op Op, errno syscall.Errno) error {
	why := ErrUnsupported
	if c.Staged && op == Add {
		why = ErrNoStaging
	}
	return fmt.Errorf("scheduler %q: %w (%s)", c.made(op).Scheduler, why, errno.Error())
}

// settle relies on different errors of the kernel for a missing destination (ENOENT) and a missing
// server (ESRCH): the second cannot be repaired by an add.
func (c DestinationChange) settle(op Op, a answer) (next Op, again bool, err error) {
	switch {
	case op == Add && a.errno == syscall.EEXIST:
		return Update, true, nil
	case op == Update && a.errno == syscall.ENOENT:
		return Add, true, nil
	case op == Delete && missing(a.errno):
		return op, false, nil
	case a.errno == syscall.ESRCH:
		return op, false, fmt.Errorf("its server %w (%s)", ErrNotExist, a.errno.Error())
	default:
		return op, false, a.fault()
	}
}

func missing(errno syscall.Errno) bool {
	return errno == syscall.ENOENT || errno == syscall.ESRCH
}
