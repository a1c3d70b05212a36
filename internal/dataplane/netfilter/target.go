package netfilter

import "net/netip"

// A Target is where a packet goes that a rule matches. All types of this file are comparable.
type Target interface{ action() }

// JumpTo leads to another chain of the table.
type JumpTo string

// A Verdict ends the way of a packet through a chain.
type Verdict uint8

// The verdicts.
const (
	Accept Verdict = iota + 1
	Drop
	Return
)

// Reject drops the packet and tells the sender that the port is unreachable.
type Reject struct{}

// SetMark makes the mark of a packet (mark &^ Mask) ^ Value.
type SetMark struct{ Value, Mask uint32 }

// DNAT rewrites the destination of a connection.
type DNAT netip.AddrPort

// SNAT rewrites the source of a connection to the address of the interface by which it leaves.
type SNAT struct {
	// Ports are those that the source port is taken from; the zero range is any.
	Ports PortRange
	// Random means a random port.
	Random bool
}

// PortRange is a range of ports with both ends; the zero value is none.
type PortRange struct{ First, Last uint16 }

// SetSegmentSize rewrites the maximum segment size that a SYN offers.
type SetSegmentSize uint16

// UnknownTarget is a target that only rules of other programs have, in the words of the tool
// that listed it.
type UnknownTarget string

func (JumpTo) action()         {}
func (Verdict) action()        {}
func (Reject) action()         {}
func (SetMark) action()        {}
func (DNAT) action()           {}
func (SNAT) action()           {}
func (SetSegmentSize) action() {}
func (UnknownTarget) action()  {}
