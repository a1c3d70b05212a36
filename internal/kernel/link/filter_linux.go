package link

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// The kernel tells each address that is bound to everybody who watches addresses, and at a
// start those are thousands of our own. They say nothing to us: only the loss of one does.
// So the socket's filter drops them before this process is woken.

// passOver has the kernel tell no address that is new on the link of an index. An index is
// not used twice, so a filter for a link that is gone drops nothing.
func (c *conn) passOver(index uint32) error {
	const drop, take = 0, ^uint32(0)
	// A filter loads in network order what the message has in the machine's
	// (Documentation/networking/filter.rst); the offsets are those of struct nlmsghdr,
	// and of struct ifaddrmsg behind it.
	kind := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.RTM_NEWADDR))
	link := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, index))
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(kind), Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: unix.SizeofNlMsghdr + 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: link, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: drop},
		{Code: unix.BPF_RET | unix.BPF_K, K: take},
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
