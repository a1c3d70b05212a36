package link

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// The kernel tells each address that is bound to all who watch addresses, and at a
// start those are thousands of our own. They say nothing to us: only the loss of one does.
// Of routes, of which a node that speaks BGP has hundreds of thousands, the default ones count
// and the loss of ours. So the socket's filter drops the rest before this process is woken.

// passOver has the kernel tell neither addresses that are new on the link of an index nor
// routes that do not count. An index is not used twice, so a filter for a link that is gone
// drops nothing.
func (c *conn) passOver(index uint32) error {
	const drop, take = 0, ^uint32(0)
	// A filter loads in network order what the message has in the machine's
	// (Documentation/networking/filter.rst); the offsets are those of struct nlmsghdr,
	// and of struct ifaddrmsg or struct rtmsg behind it.
	kind := func(k uint16) uint32 {
		return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, k)))
	}
	link := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, index))
	const load, equal, end = unix.BPF_LD | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	program := []unix.SockFilter{
		{Code: load | unix.BPF_H, K: 4},
		{Code: equal, K: kind(unix.RTM_NEWADDR), Jf: 2},
		{Code: load | unix.BPF_W, K: unix.SizeofNlMsghdr + 4},
		{Code: equal, K: link, Jt: 6, Jf: 7},
		{Code: equal, K: kind(unix.RTM_NEWROUTE), Jt: 3},
		{Code: equal, K: kind(unix.RTM_DELROUTE), Jf: 5},
		{Code: load | unix.BPF_B, K: unix.SizeofNlMsghdr + 5},
		{Code: equal, K: RouteProtocol, Jt: 3},
		{Code: load | unix.BPF_B, K: unix.SizeofNlMsghdr + 1},
		{Code: equal, K: 0, Jt: 1},
		{Code: end, K: drop},
		{Code: end, K: take},
	}
	var failed error
	err := c.raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	if err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("filter what is watched: %w", failed)
	}
	return nil
}
