package vserver

import (
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Flags of a Server, from include/uapi/linux/ip_vs.h. The kernel's own HASHED
// (0x2) is never part of a Server.
const (
	FlagPersistent uint32 = 0x1  // a client keeps its destination for Timeout seconds
	FlagOnePacket  uint32 = 0x4  // each UDP datagram is scheduled on its own
	FlagSched1     uint32 = 0x8  // sh-fallback, mh-fallback
	FlagSched2     uint32 = 0x10 // sh-port, mh-port
	FlagSched3     uint32 = 0x20 // no scheduler of the kernel's own reads it

	flagHashed uint32 = 0x2
)

// Forwarding methods of a Destination. kube-ipvs writes all but ForwardLocal, which only other
// programs use.
const (
	ForwardMasq   uint8 = 0
	ForwardLocal  uint8 = 1
	ForwardTunnel uint8 = 2
	ForwardRoute  uint8 = 3
)

// The encapsulations of ForwardTunnel (enum in include/uapi/linux/ip_vs.h). kube-ipvs writes the
// first two; GUE is there since Linux 5.3 ("ipvs: allow tunneling with gue encapsulation").
const (
	TunnelIPIP uint8 = 0 // another IP header alone
	TunnelGUE  uint8 = 1 // UDP and Generic UDP Encapsulation (draft-ietf-intarea-gue) as well
	TunnelGRE  uint8 = 2
)

// SchedulerNone is the name of no scheduler: a server under it takes destinations and
// finds none for a packet. Linux 4.2 brought it (05f00505a89a, "ipvs: fix crash if
// scheduler is changed"): ip_vs_add_service and ip_vs_edit_service in
// net/netfilter/ipvs/ip_vs_ctl.c look no scheduler up for it. To set a real one from
// there waits for no grace period, for there is no old one to let go of.
const SchedulerNone = "none"

// Server is what the kernel keeps of one virtual server. Two equal values need
// no write.
type Server struct {
	// Scheduler is the algorithm's name, or SchedulerNone: no new connections yet.
	Scheduler string
	// Flags is a union of the Flag constants.
	Flags uint32
	// Timeout of persistence in seconds, 0 without FlagPersistent.
	Timeout uint32
	// HostBits is how many low bits of the client address persistence leaves
	// out. kube-ipvs writes 0, the whole address; another value was found.
	HostBits uint8
	// Engine is the persistence engine's name. kube-ipvs writes none.
	Engine string
}

// Destination is what the kernel keeps of one destination. Two equal values
// need no write.
type Destination struct {
	// Weight 0 takes no new connections. The kernel allows more than 65535; such a weight of
	// another program is read as 65535.
	Weight uint16
	// TunnelPort is the UDP port of TunnelGUE, and TunnelFlags say how its checksums are made: kube-ipvs writes 0, none.
	TunnelPort, TunnelFlags uint16
	// Forward is one of the Forward constants, and Tunnel what ForwardTunnel wraps packets in.
	Forward, Tunnel uint8
	// Upper and Lower are connection thresholds, 0 for none.
	Upper, Lower uint32
}

// Op is an operation on a row.
type Op = netkey.Op

// The operations.
const (
	Add    = netkey.Add
	Update = netkey.Update
	Delete = netkey.Delete
)

// ServerChange is one row of a WriteServers batch. Server is not read for
// Delete, which also removes the server's destinations.
type ServerChange struct {
	Op     Op
	Key    ServerKey
	Server Server
	// Staged has Add make the server under SchedulerNone, to be filled and then updated
	// to Server. One that is there already becomes Server at once: it may be in use. Add
	// does not tell which of the two it was. A kernel that lacks the name refuses with
	// ErrNoStaging.
	Staged bool
}

// made is the server that an operation writes.
func (c ServerChange) made(op Op) Server {
	s := c.Server
	if c.Staged && op == Add {
		s.Scheduler = SchedulerNone
	}
	return s
}

// DestinationChange is one row of a WriteDestinations batch. Destination is not
// read for Delete.
type DestinationChange struct {
	Op          Op
	Key         DestinationKey
	Destination Destination
}
