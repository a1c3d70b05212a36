package model

import (
	"time"

	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// Policy is what the annotations of a Service ask of the way it is carried: those of
// kube-ipvs.io that could be read. The zero Policy asks for nothing.
type Policy struct {
	// Scheduler is the algorithm with its flags; the zero Spec is this node's.
	Scheduler scheduler.Spec
	// Weight is the weight of endpoints without a weight of their Node or of their slice; nil is
	// DefaultWeight.
	Weight *uint16
	// OnePacket has each datagram of UDP scheduled on its own (IP_VS_SVC_F_ONEPACKET).
	OnePacket bool
	// Skip: this node does not serve the Service at all.
	Skip bool
	// Drain is Frontend.Drain; nil is this node's setting (--drain).
	Drain *time.Duration
	// SlowStart is Frontend.SlowStart.
	SlowStart time.Duration
	// Limit is Frontend.Limit.
	Limit Limit
	// Forward is how packets get from the external addresses to the endpoints.
	Forward Forward
	// GUE is Frontend.GUE.
	GUE uint16
}

// Equal reports whether two policies ask for the same; a nil policy asks for nothing.
func (p *Policy) Equal(o *Policy) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.Scheduler == o.Scheduler && same(p.Weight, o.Weight) && p.OnePacket == o.OnePacket && p.Skip == o.Skip &&
		same(p.Drain, o.Drain) && p.SlowStart == o.SlowStart && p.Limit == o.Limit && p.Forward == o.Forward && p.GUE == o.GUE
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// Limit bounds the connections of one node to one backend, active and inactive ones together. The
// kernel applies it (IP_VS_DEST_F_OVERLOAD, ip_vs_unbind_dest in net/netfilter/ipvs/ip_vs_conn.c).
// At Upper the backend gets no new ones until it has fewer than Lower, or fewer than three quarters
// of Upper if Lower is 0. The zero Limit is none.
type Limit struct{ Upper, Lower uint32 }

// Forward is how a packet gets from a frontend to a backend.
type Forward uint8

// The ways. All but ForwardNAT leave the address of the frontend in the packet, which the
// backend answers directly: direct server return.
const (
	// ForwardNAT rewrites the destination, and the reply on its way back.
	ForwardNAT Forward = iota
	// ForwardDirect puts the packet on the link of the backend as it is (ipvsadm -g).
	ForwardDirect
	// ForwardTunnel wraps it in another IP header (ipvsadm -i), and UDP where Frontend.GUE is set.
	ForwardTunnel
)

var forwardNames = [...]string{ForwardNAT: "nat", ForwardDirect: "dr", ForwardTunnel: "tunnel"}

// String prints the way as the annotation does.
func (f Forward) String() string {
	if int(f) < len(forwardNames) {
		return forwardNames[f]
	}
	return "unknown"
}

// ParseForward reads what String prints.
func ParseForward(s string) (Forward, bool) {
	for f, name := range forwardNames {
		if name == s {
			return Forward(f), true
		}
	}
	return ForwardNAT, false
}
