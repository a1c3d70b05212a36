package model

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// FrontendKey is what a client dials. Two Services cannot both have one key;
// the older keeps it (dataplane.Frontends).
type FrontendKey struct {
	Addr     netip.Addr
	Port     uint16
	Protocol Protocol
}

// String prints 10.96.0.10:53/udp.
func (k FrontendKey) String() string {
	return netip.AddrPortFrom(k.Addr, k.Port).String() + "/" + k.Protocol.String()
}

// Compare orders by address, port, protocol.
func (k FrontendKey) Compare(o FrontendKey) int {
	return cmp.Or(k.Addr.Compare(o.Addr), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Protocol, o.Protocol))
}

// Kind says which field of the Service a frontend comes from.
type Kind uint8

// KindClusterIP is a frontend from spec.clusterIPs.
const KindClusterIP Kind = 1

// String prints the kind as people name it.
func (k Kind) String() string {
	if k == KindClusterIP {
		return "ClusterIP"
	}
	return "unknown"
}

// Frontend holds every decision about one address, port and protocol. A mode
// renders it and decides nothing more.
type Frontend struct {
	Key  FrontendKey
	Kind Kind
	// Service and PortName say where it comes from.
	Service  ServiceID
	PortName string
	// Scheduler is the algorithm with its flags.
	Scheduler scheduler.Spec
	// Affinity keeps a client address on its backend for so long; 0 is off.
	Affinity time.Duration
	// Backends are the endpoints that new connections may reach, sorted and
	// without duplicates. Empty means: answer, but refuse.
	Backends []Backend
	// Hairpin are the endpoints of this port on this node, ready or not, sorted:
	// one that reaches itself through the frontend needs its source rewritten.
	Hairpin []netip.AddrPort
}

// Name prints namespace/name:port, the way kube-proxy names a service port.
func (f Frontend) Name() string { return joinPort(f.Service.String(), f.PortName) }

// Equal tells whether two frontends mean the same.
func (f Frontend) Equal(o Frontend) bool {
	return f.Key == o.Key && f.Kind == o.Kind && f.Service == o.Service && f.PortName == o.PortName &&
		f.Scheduler == o.Scheduler && f.Affinity == o.Affinity &&
		slices.Equal(f.Backends, o.Backends) && slices.Equal(f.Hairpin, o.Hairpin)
}

// Backend is one address and port behind a frontend.
type Backend struct {
	Addr netip.AddrPort
	// Weight as IPVS means it: 0 takes no new connections; at most 65535.
	Weight uint16
}

// DefaultWeight is the weight of a backend for which nothing else was asked.
const DefaultWeight uint16 = 1

// Compare orders by address and port, then weight.
func (b Backend) Compare(o Backend) int {
	return cmp.Or(b.Addr.Compare(o.Addr), cmp.Compare(b.Weight, o.Weight))
}

// ServicePlan is the outcome of compiling one Service.
type ServicePlan struct {
	ID ServiceID
	// Created is Service.Created.
	Created time.Time
	// Frontends, sorted by key; empty when the Service is gone or skipped.
	Frontends []Frontend
	// Skipped says why nothing of the Service is served; empty otherwise.
	Skipped string
	// Notes say, a sentence each, what of it is not served and why, sorted.
	Notes []string
}
