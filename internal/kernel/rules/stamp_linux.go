package rules

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tableInfo is struct ipt_getinfo, and ip6t_getinfo, which is laid out alike
// (include/uapi/linux/netfilter_ipv4/ip_tables.h).
type tableInfo struct {
	name                 [32]byte
	validHooks           uint32
	hookEntry, underflow [5]uint32 // where the rules of each hook begin and end
	entries, size        uint32
}

// getInfo is IPT_SO_GET_INFO and IP6T_SO_GET_INFO.
const getInfo = 64

// Stamp is a number of a table of legacy that is another one when rules or chains
// have come or gone, by whomever, read without a process from the network
// namespace of the calling thread. It is made of how many there are, of their
// size and of where the hooks begin: a change that leaves all of these alone, as
// one rule for another of its size in a user chain, is not seen. It fails with
// [ErrUnsupported] for a table that is not loaded, and loads none; with nft all
// tables are such. It may be called from any goroutine.
func (h *Handle) Stamp(f Family, table string) (uint64, error) {
	if h.backend != Legacy || h.per[f] == nil {
		return 0, fmt.Errorf("stamp of table %s %s: %w", f, table, ErrUnsupported)
	}
	info, err := h.tableInfo(f, table)
	if err != nil {
		return 0, fmt.Errorf("stamp of table %s %s: %w", f, table, err)
	}
	sum := fnv.New64a()
	fmt.Fprint(sum, info)
	return sum.Sum64(), nil
}

func (h *Handle) tableInfo(f Family, table string) (info tableInfo, err error) {
	// To ask the kernel for a table loads it.
	loaded, err := tableLoaded(h.opts.Root, f, table)
	if err != nil {
		return info, err
	}
	if !loaded {
		return info, fmt.Errorf("not loaded: %w", ErrUnsupported)
	}
	domain, level := unix.AF_INET, unix.SOL_IP
	if f == IPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return info, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	copy(info.name[:len(info.name)-1], table)
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	switch errno {
	case 0:
		return info, nil
	case unix.ENOENT, unix.ENOPROTOOPT:
		return info, fmt.Errorf("%w: %w", ErrUnsupported, errno)
	default:
		return info, os.NewSyscallError("getsockopt", errno)
	}
}

// tableLoaded looks into the list of legacy's tables of the namespace.
func tableLoaded(root string, f Family, table string) (bool, error) {
	text, err := os.ReadFile(netFile(root, namesFile(f)))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return slices.Contains(strings.Fields(string(text)), table), err
}
