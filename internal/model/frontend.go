package model

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// FrontendKey is what a client dials. Two Services cannot both have one key;
// the older keeps it (dataplane.Frontends).
type FrontendKey = netkey.Tuple

// Kind is the field of the Service that a frontend comes from.
type Kind uint8

// The kinds, in the order in which one Service's own claims on an address and
// port are settled.
const (
	// KindClusterIP is a frontend from spec.clusterIPs.
	KindClusterIP Kind = iota + 1
	// KindLoadBalancer is one from status.loadBalancer.ingress. It comes before
	// the external IPs, which have no source ranges.
	KindLoadBalancer
	// KindExternalIP is one from spec.externalIPs.
	KindExternalIP
	// KindNodePort is one from spec.ports[].nodePort, on an address of the node.
	KindNodePort
	// KindDetour is a frontend that clients cannot reach directly. It exists beside the cluster IP
	// if clients of this node are redirected (see Frontend.Detour) and the frontend of the cluster
	// IP has other backends.
	KindDetour
)

var kindNames = [...]string{
	KindClusterIP: "ClusterIP", KindExternalIP: "ExternalIP", KindLoadBalancer: "LoadBalancer",
	KindNodePort: "NodePort", KindDetour: "Detour",
}

// String prints the kind as people name it.
func (k Kind) String() string {
	if k >= KindClusterIP && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Rank orders the claims of several Services on one address and port, the strongest first. A
// cluster IP (spec.clusterIPs) is allocated by the API server. Then follow load-balancer addresses,
// which a controller writes (status.loadBalancer), and node ports of this node. External IPs are
// last, because each user who may write a Service may write them (spec.externalIPs, CVE-2020-8554).
func (k Kind) Rank() int {
	switch k {
	case KindLoadBalancer:
		return 1
	case KindNodePort:
		return 2
	case KindExternalIP:
		return 3
	default:
		return 0
	}
}

// Noun prints the kind as part of a sentence: "cluster IP".
func (k Kind) Noun() string {
	if k >= KindClusterIP && int(k) < len(kindNouns) {
		return kindNouns[k]
	}
	return "address"
}

var kindNouns = [...]string{
	KindClusterIP: "cluster IP", KindExternalIP: "external IP", KindLoadBalancer: "load-balancer address",
	KindNodePort: "node port", KindDetour: "cluster IP",
}

// External reports whether externalTrafficPolicy applies to frontends of the kind.
func (k Kind) External() bool {
	return k == KindExternalIP || k == KindLoadBalancer || k == KindNodePort
}

// Frontend holds every decision about one address, port and protocol. A mode
// renders it and decides nothing more.
type Frontend struct {
	Key  FrontendKey
	Kind Kind
	// Service and PortName say where it comes from.
	Service  ServiceID
	PortName string
	// Scheduler is the algorithm with its flags; zero in a mode without schedulers.
	Scheduler scheduler.Spec
	// Affinity keeps a client address on its backend for so long; 0 is off.
	Affinity time.Duration
	// Bind: the address is to be bound to kube-ipvs0. It is false if another machine has the
	// address, so that only the port is served (internal/DECISIONS.md, Addresses of other
	// machines).
	Bind bool
	// Capture: the address is neither bound nor on a link of this machine. Packets to the
	// port are taken to the virtual server, all others go where they went before.
	Capture bool
	// Local: the policy that governs the frontend is Local. Backends are on this
	// node, and an external client keeps its source address.
	Local bool
	// NoLocal: the policy leaves no backend here, but other nodes have some. Packets of
	// clients are dropped, as in kube-proxy's iptables mode, and not rejected.
	NoLocal bool
	// Terminating: the policy is Local, no endpoint of this node is ready, and Backends are endpoints
	// that still serve while they terminate. Load balancers are to use other nodes.
	Terminating bool
	// SourceRanges are the clients that may use a load-balancer address; empty
	// admits all. OwnNode: this node's own address is in one of them.
	SourceRanges []netip.Prefix
	OwnNode      bool
	// Detour is the address to which packets from this node (its pods and the host) are redirected.
	// These clients use all endpoints of the cluster even if the external policy is Local
	// (internal/DECISIONS.md, Traffic policies). It has the key's protocol at the cluster IP; the
	// zero AddrPort is no detour.
	Detour netip.AddrPort
	// Backends are the endpoints that new connections may reach, sorted and
	// without duplicates. Empty means: answer, but refuse (see NoLocal).
	Backends []Backend
	Delivery
	// Kept are the endpoints, sorted, that are no backends but keep their existing connections
	// without a time limit. A policy or a hint excludes them, they terminate but still serve, or
	// they are temporarily not ready. No new connection goes there.
	Kept []netip.AddrPort
	// Hairpin are the endpoints of this port on this node, ready or not, sorted:
	// one that reaches itself through a frontend needs its source rewritten. Only
	// the ClusterIP frontend carries them, for all of its port and family.
	Hairpin []netip.AddrPort
}

// Delivery is how connections and packets get to the backends of a frontend, as far as annotations
// of its Service decide that.
type Delivery struct {
	// Drain is how long the connections of an endpoint outlive it after it stopped serving;
	// 0 cuts them (kube-ipvs.io/drain, --drain).
	Drain time.Duration
	// SlowStart is the time in which the weight of a new backend rises to its full weight while
	// others take the load; 0 gives it at once (kube-ipvs.io/slow-start).
	SlowStart time.Duration
	// Limit bounds the connections of each backend (kube-ipvs.io/max-connections).
	Limit Limit
	// GUE is the UDP port of the backends to which ForwardTunnel sends packets wrapped by Generic UDP Encapsulation; 0 wraps
	// them in IP alone (kube-ipvs.io/tunnel).
	GUE uint16
	// Forward is how packets get to the backends (kube-ipvs.io/forward). All but ForwardNAT
	// keep the address of the client as well, whatever the policy, and have backends on the
	// port of the frontend alone.
	Forward Forward
	// OnePacket schedules each datagram on its own, so that one client socket reaches
	// all backends; for UDP alone. A reply does not get the address of the frontend
	// (ip_vs_update_conntrack, net/netfilter/ipvs/ip_vs_nfct.c).
	OnePacket bool
}

// Name prints namespace/name:port, the way kube-proxy names a service port.
func (f Frontend) Name() string { return joinPort(f.Service.String(), f.PortName) }

// Equal reports whether two frontends mean the same.
func (f Frontend) Equal(o Frontend) bool {
	return f.Key == o.Key && f.Kind == o.Kind && f.Service == o.Service && f.PortName == o.PortName &&
		f.Scheduler == o.Scheduler && f.Affinity == o.Affinity &&
		f.Bind == o.Bind && f.Capture == o.Capture && f.Local == o.Local && f.NoLocal == o.NoLocal && f.Terminating == o.Terminating &&
		f.OwnNode == o.OwnNode && f.Detour == o.Detour && slices.Equal(f.SourceRanges, o.SourceRanges) &&
		f.Delivery == o.Delivery &&
		slices.Equal(f.Backends, o.Backends) && slices.Equal(f.Kept, o.Kept) && slices.Equal(f.Hairpin, o.Hairpin)
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
	// Skipped is why nothing of the Service is served; empty otherwise.
	Skipped string
	// Intended means that nothing of it is to be served, for the reason in Skipped: it is headless, of type
	// ExternalName, another proxy's, or has the annotation kube-ipvs.io/skip.
	Intended bool
	// Remarks say, a sentence each, what of it is left out as it asks, sorted: a load-balancer
	// address with ipMode Proxy.
	Remarks []Note
	// Notes say, a sentence each, what of it is not served and why, sorted.
	Notes []Note
	// BadAnnotations are those of the notes that say which annotation is not followed,
	// and why, sorted.
	BadAnnotations []string
	// Unbound are the addresses that are served but not bound, for another machine needs
	// them, sorted.
	Unbound []netip.Addr
	// Refused are the external IPs that the operator does not allow, sorted.
	Refused []netip.Addr
	// Beyond is how much of it is not served because it is more than one Service may have.
	Beyond Beyond
	// Health has the answers of its health-check port.
	Health HealthCheck
	// Relays are its NodePorts on loopback addresses, sorted by key.
	Relays []Relay
}

// HealthCheck is the answer to load balancers about a Service on this node
// (spec.healthCheckNodePort).
type HealthCheck struct {
	// Port is where it asks; 0 is no health check.
	Port uint16
	// IPv4 and IPv6 are the answers on addresses of the node of that family.
	IPv4, IPv6 LocalEndpoints
}

// LocalEndpoints counts the ready endpoints of a Service on this node.
type LocalEndpoints struct {
	// Served: the port answers on node addresses of this family.
	Served bool
	// Other: the Service has only the other family, whose endpoints are counted. The port
	// answers all the same: a load balancer asks by any address of the node.
	Other bool
	// Ready is the number of different addresses over all ports.
	Ready int
}

// Beyond counts what a Service has beyond the bounds for one Service.
type Beyond struct {
	// Frontends are not served, and clients in SourceRanges are not admitted.
	Frontends, SourceRanges int
}
