package vserver

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

// Forwarding methods of a Destination. kube-ipvs writes ForwardMasq only; the
// others tell what somebody else left behind.
const (
	ForwardMasq   uint8 = 0
	ForwardLocal  uint8 = 1
	ForwardTunnel uint8 = 2
	ForwardRoute  uint8 = 3
)

// Server is what the kernel keeps of one virtual server. Two equal values need
// no write.
type Server struct {
	// Scheduler is the algorithm's name, or "none": no new connections yet.
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
	// Weight 0 takes no new connections. The kernel allows more than 65535;
	// such a weight, written by somebody else, is read as 65535.
	Weight uint16
	// Forward is one of the Forward constants.
	Forward uint8
	// Upper and Lower are connection thresholds, 0 for none. kube-ipvs writes 0.
	Upper, Lower uint32
}

// Op says what to do with a row.
type Op uint8

// The three operations. Add and Update converge on the same result; saying
// which one is expected saves a round trip.
const (
	Add Op = iota
	Update
	Delete
)

// String gives the verb for logs and errors.
func (o Op) String() string {
	switch o {
	case Add:
		return "add"
	case Update:
		return "update"
	default:
		return "delete"
	}
}

// ServerChange is one row of a WriteServers batch. Server is not read for
// Delete, which also removes the server's destinations.
type ServerChange struct {
	Op     Op
	Key    ServerKey
	Server Server
}

// DestinationChange is one row of a WriteDestinations batch. Destination is not
// read for Delete.
type DestinationChange struct {
	Op          Op
	Key         DestinationKey
	Destination Destination
}
