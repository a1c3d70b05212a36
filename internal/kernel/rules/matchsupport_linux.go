package rules

import (
	"context"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// revisionQuery is struct xt_get_revision (include/uapi/linux/netfilter/x_tables.h).
type revisionQuery struct {
	name     [29]byte
	revision uint8
}

// Questions for revisions of matches (include/uapi/linux/netfilter_ipv4/ip_tables.h and
// netfilter_ipv6/ip6_tables.h).
const (
	getMatch4 = 66 // IPT_SO_GET_REVISION_MATCH
	getMatch6 = 68 // IP6T_SO_GET_REVISION_MATCH
)

// FindMatch returns an error that matches [ErrUnsupported] if the kernel lacks a match, such as
// "set", in a family of this node. The kernel loads modules for the question. Another error does not
// mean that the match is missing. It may be called from any goroutine in the network namespace.
func (h *Handle) FindMatch(ctx context.Context, name string) error {
	ask := h.opts.Match
	if h.backend == Legacy {
		ask = h.legacyMatch
	}
	if ask == nil {
		return nil
	}
	for _, f := range h.families {
		if err := ask(ctx, f, name); err != nil {
			return err
		}
	}
	return nil
}

// legacyMatch asks for a match of legacy. The kernel may wait for modprobe(8) and knows no deadline:
// a question that is not answered keeps its goroutine and its socket, not the caller.
func (h *Handle) legacyMatch(ctx context.Context, f Family, name string) error {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	domain, level, option := unix.AF_INET, unix.SOL_IP, getMatch4
	if f == IPv6 {
		domain, level, option = unix.AF_INET6, unix.SOL_IPV6, getMatch6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	done := make(chan error, 1)
	go func() {
		err := askExtension(fd, level, option, name)
		_ = unix.Close(fd)
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = fmt.Errorf("%w: no answer from the kernel: %w", ErrBusy, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("find match %s of iptables-legacy, family %s: %w", name, f.Table(), err)
	}
	return nil
}

// askExtension asks for revision 0. The kernel answers EPROTONOSUPPORT if it has others.
func askExtension(fd, level, option int, name string) error {
	var e revisionQuery
	copy(e.name[:len(e.name)-1], name)
	size := uint32(unsafe.Sizeof(e))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&e)), uintptr(unsafe.Pointer(&size)), 0)
	switch errno {
	case 0, unix.EPROTONOSUPPORT:
		return nil
	case unix.ENOENT, unix.ENOPROTOOPT:
		return fmt.Errorf("this kernel lacks it: %w: %w", ErrUnsupported, errno)
	default:
		return os.NewSyscallError("getsockopt", errno)
	}
}
