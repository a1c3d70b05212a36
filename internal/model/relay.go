package model

import (
	"net/netip"
	"slices"
	"time"
)

// Relay is one NodePort on a loopback address. The kernel serves none there, so a process listens
// on it (--nodeport-addresses=localhost).
type Relay struct {
	// Key has the loopback address, the NodePort and the protocol, TCP or UDP.
	Key FrontendKey
	// Targets are where connections go, sorted: the cluster IP, or endpoints where a policy
	// leaves the cluster IP other ones. Empty means that connections are refused.
	Targets []netip.AddrPort
	// Affinity keeps one target that long after its latest connection; 0 is off. All clients
	// have the same address.
	Affinity time.Duration
}

// Equal reports whether two relays mean the same.
func (r Relay) Equal(o Relay) bool {
	return r.Key == o.Key && r.Affinity == o.Affinity && slices.Equal(r.Targets, o.Targets)
}
