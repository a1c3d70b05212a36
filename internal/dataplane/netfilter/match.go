package netfilter

import (
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// A Match is one condition on a packet. Each type of this file is one, and comparable but for
// All. A renderer has a case for each.
type Match interface{ condition() }

// All are several conditions where one is expected; If takes them apart.
type All []Match

// Not is the opposite of a condition.
type Not struct{ Match }

// Source and Destination match the addresses of the packet.
type (
	Source      netip.Prefix
	Destination netip.Prefix
)

// SourceIP returns the condition that a packet comes from one address.
func SourceIP(a netip.Addr) Source { return Source(netip.PrefixFrom(a, a.BitLen())) }

// DestinationIP returns the condition that a packet is for one address.
func DestinationIP(a netip.Addr) Destination { return Destination(netip.PrefixFrom(a, a.BitLen())) }

// Input matches the interface by which the packet came.
type Input struct {
	Name string
	// Prefix: Name is how the names of all matching interfaces begin.
	Prefix bool
}

// Protocol matches the protocol above IP by its number.
type Protocol uint8

// The protocols of rules.
const (
	ICMP   Protocol = 1
	TCP             = Protocol(model.TCP)
	UDP             = Protocol(model.UDP)
	ICMPv6 Protocol = 58
	SCTP            = Protocol(model.SCTP)
)

// DestinationPort matches a port of a protocol, which a condition before it has to match.
// Port 0 is any.
type DestinationPort struct {
	Protocol Protocol
	Port     uint16
}

// ICMPType matches messages of ICMP, or of ICMPv6 in rules of IPv6.
type ICMPType uint8

// The types of an echo request.
const (
	EchoRequest   ICMPType = 8
	EchoRequestV6 ICMPType = 128
)

// TCPFlags matches packets that have, of the flags Of, those of Set and no other.
type TCPFlags struct{ Of, Set TCPFlag }

// A TCPFlag is a set of flags of TCP, with their bits in the header.
type TCPFlag uint8

// The flags.
const (
	FIN TCPFlag = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// SegmentSize matches the maximum segment size that a SYN offers: From to To.
type SegmentSize struct{ From, To uint16 }

// InSet matches the entries of a set.
type InSet struct {
	// Name is the kernel's name of the set.
	Name string
	By   Fields
}

// Fields say for each dimension of a set which end of the packet is looked up; 0 ends them.
type Fields [3]Direction

// A Direction is one end of a packet.
type Direction uint8

// The directions.
const (
	Src Direction = iota + 1
	Dst
)

// Local matches packets one end of which is an address of this machine.
type Local Direction

// State matches packets by what connection tracking knows of them: any of some states.
type State uint8

// The states; DNATed are connections whose destination was rewritten.
const (
	Invalid State = 1 << iota
	New
	Related
	Established
	Untracked
	SNATed
	DNATed
)

// Mark matches packets whose mark is Value in the bits of Mask.
type Mark struct{ Value, Mask uint32 }

// OneIn matches one in n packets at random.
type OneIn int

// Seen matches packets from an address that is in a list of the kernel for no longer than
// Within, and deletes entries that are older. Remember puts it there.
type (
	Seen struct {
		List   string
		Within time.Duration
	}
	Remember struct{ List string }
)

// A Comment matches every packet, and names the purpose of the rule.
type Comment string

// Unknown is a condition that only rules of other programs have, in the words of the tool
// that listed it.
type Unknown string

func (All) condition()             {}
func (Not) condition()             {}
func (Source) condition()          {}
func (Destination) condition()     {}
func (Input) condition()           {}
func (Protocol) condition()        {}
func (DestinationPort) condition() {}
func (ICMPType) condition()        {}
func (TCPFlags) condition()        {}
func (SegmentSize) condition()     {}
func (InSet) condition()           {}
func (Local) condition()           {}
func (State) condition()           {}
func (Mark) condition()            {}
func (OneIn) condition()           {}
func (Seen) condition()            {}
func (Remember) condition()        {}
func (Comment) condition()         {}
func (Unknown) condition()         {}
