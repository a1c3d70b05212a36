package rules_test

import (
	"context"
	endian "encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// generation asks the kernel for that of nftables (NFT_MSG_GETGEN) in the namespace of
// the calling thread.
func generation(context.Context) (uint64, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	ask := make([]byte, unix.SizeofNlMsghdr+4)
	endian.NativeEndian.PutUint32(ask, uint32(len(ask)))
	endian.NativeEndian.PutUint16(ask[4:], unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN)
	endian.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	got := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, got, 0)
	if err != nil {
		return 0, err
	}
	const first = unix.SizeofNlMsghdr + 4 + 4 // the value of NFTA_GEN_ID
	if n < first+4 || endian.NativeEndian.Uint16(got[first-2:]) != unix.NFTA_GEN_ID {
		return 0, fmt.Errorf("answer of %d bytes", n)
	}
	return uint64(endian.BigEndian.Uint32(got[first:])), nil
}
