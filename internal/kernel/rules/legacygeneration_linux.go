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

// Stamp is a number for tables of legacy that changes when any program adds or removes rules or
// chains in one of them. It is read without a process, in the network namespace of the calling
// thread. It is computed from the number of rules, their size and the starts of the hooks. A change
// that keeps all of these, such as replacing a rule of a user chain by another of the same size, is
// not seen. A table that is not loaded has no rules and is not loaded by this; if none is loaded it
// fails with [ErrUnsupported], as it always does with nft. It may be called from any goroutine.
func (h *Handle) Stamp(f Family, tables ...string) (uint64, error) {
	if h.backend != Legacy || h.per[f] == nil {
		return 0, fmt.Errorf("stamp of tables %s %s: %w", f, tables, ErrUnsupported)
	}
	infos, err := h.tableInfos(f, tables)
	if err != nil {
		return 0, fmt.Errorf("stamp of tables %s %s: %w", f, tables, err)
	}
	sum := fnv.New64a()
	fmt.Fprint(sum, infos)
	return sum.Sum64(), nil
}

// tableInfos asks for those that are loaded.
func (h *Handle) tableInfos(f Family, tables []string) ([]tableInfo, error) {
	// To ask the kernel for a table loads it.
	loaded, err := tablesLoaded(h.opts.Root, f)
	if err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(slices.Clone(tables), func(t string) bool { return !slices.Contains(loaded, t) })
	if len(tables) == 0 {
		return nil, fmt.Errorf("not loaded: %w", ErrUnsupported)
	}
	domain, level := unix.AF_INET, unix.SOL_IP
	if f == IPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	infos := make([]tableInfo, len(tables))
	for i, table := range tables {
		if err := infos[i].read(fd, level, table); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

func (i *tableInfo) read(fd, level int, table string) error {
	copy(i.name[:len(i.name)-1], table)
	size := uint32(unsafe.Sizeof(*i))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(i)), uintptr(unsafe.Pointer(&size)), 0)
	switch errno {
	case 0:
		return nil
	case unix.ENOENT, unix.ENOPROTOOPT:
		return fmt.Errorf("%w: %w", ErrUnsupported, errno)
	default:
		return os.NewSyscallError("getsockopt", errno)
	}
}

// tablesLoaded is the list of legacy's tables of the namespace.
func tablesLoaded(root string, f Family) ([]string, error) {
	text, err := os.ReadFile(netFile(root, namesFile(f)))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}
