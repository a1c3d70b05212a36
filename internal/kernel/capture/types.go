package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// The errors of this package.
var (
	// ErrUnsupported: this operating system has no packet sockets.
	ErrUnsupported = errors.New("not supported")
	// ErrTooMany: more endpoints than a filter can hold.
	ErrTooMany = errors.New("too many endpoints")
)

// IP protocol numbers.
const (
	ICMP   uint8 = 1
	TCP    uint8 = 6
	UDP    uint8 = 17
	ICMPv6 uint8 = 58
	SCTP   uint8 = 132
)

// MostEndpoints is how many endpoints a Filter may have: the kernel takes 4,096
// instructions (BPF_MAXINSNS), and an endpoint of IPv6 is 40 of them.
const MostEndpoints = 96

// Filter selects the packets to capture.
type Filter struct {
	// Protocol is TCP, UDP or SCTP.
	Protocol uint8
	// Endpoints are wanted as source or destination; all are of one family.
	Endpoints []netip.AddrPort
}

// Check refuses what the kernel could not do.
func (f Filter) Check() error {
	switch {
	case f.Protocol != TCP && f.Protocol != UDP && f.Protocol != SCTP:
		return fmt.Errorf("protocol %d has no ports", f.Protocol)
	case len(f.Endpoints) == 0:
		return errors.New("a filter without endpoints")
	case len(f.Endpoints) > MostEndpoints:
		return fmt.Errorf("%d of at most %d: %w", len(f.Endpoints), MostEndpoints, ErrTooMany)
	}
	for _, e := range f.Endpoints {
		if !e.Addr().IsValid() || e.Addr().Is4() != f.Endpoints[0].Addr().Is4() || e.Addr().Is4In6() {
			return fmt.Errorf("endpoint %s is not of the family of %s", e, f.Endpoints[0])
		}
	}
	return nil
}

// Direction is where a packet was going when it was seen.
type Direction uint8

const (
	// In: a link received it for this machine, which includes what is forwarded.
	In Direction = iota + 1
	// Out: it is about to leave by the link.
	Out
	// Passing: a link received it for another link address, as ports of a bridge do.
	Passing
)

// String is the direction in a word.
func (d Direction) String() string {
	switch d {
	case In:
		return "in"
	case Out:
		return "out"
	case Passing:
		return "passing"
	}
	return "direction" + strconv.Itoa(int(d))
}

// Flags of TCP, as the header has them.
const (
	FIN uint8 = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Packet has the known facts about one packet.
type Packet struct {
	Link      string // "" if it is gone
	Direction Direction
	Protocol  uint8
	// Src and Dst are the ends; of a message of ICMP they have port 0.
	Src, Dst netip.AddrPort
	Flags    uint8  // flags of TCP
	Seq      uint32 // sequence number of TCP
	// Refusal is set for a message of ICMP: its meaning for the packet between Of.Src
	// and Of.Dst.
	Refusal string
	Of      *Packet
}

// Stats counts since the socket was opened.
type Stats struct {
	Passed uint64 // the filter, those that were lost included
	Lost   uint64 // because they were not read in time
}
