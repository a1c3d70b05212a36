package host

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// getTxChecksum is ETHTOOL_GTXCSUM of include/uapi/linux/ethtool.h: whether any kind of
// checksum is left to the link, tx-checksum-ip-generic among them, which VXLAN has.
const getTxChecksum = 0x16

// ethtoolValue is struct ethtool_value.
type ethtoolValue struct{ cmd, data uint32 }

// ethtoolRequest is struct ifreq with a pointer; the kernel copies 40 bytes on 64-bit
// machines and fewer on others.
type ethtoolRequest struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// checksumOffload reports whether a link computes checksums of packets that it sends. It changes
// nothing.
func checksumOffload(link string) (bool, error) {
	if len(link) >= unix.IFNAMSIZ {
		return false, fmt.Errorf("%q is not the name of a link", link)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	value := ethtoolValue{cmd: getTxChecksum}
	request := ethtoolRequest{data: unsafe.Pointer(&value)}
	copy(request.name[:], link)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return false, fmt.Errorf("ethtool -k %s: %w", link, errno)
	}
	return value.data != 0, nil
}
