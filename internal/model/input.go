package model

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Origin names the source an object came from ("kube", "file"). Where two
// sources clash the smaller rank wins, see Rank.
type Origin string

// The sources an object can come from.
const (
	FromKube Origin = "kube"
	FromFile Origin = "file"
)

// Rank orders origins: Kubernetes before files before anything else.
func (o Origin) Rank() int {
	switch o {
	case FromKube:
		return 0
	case FromFile:
		return 1
	}
	return 2
}

// ServiceID identifies a Service within the agent.
type ServiceID struct {
	Origin    Origin
	Namespace string
	Name      string
}

// String prints namespace/name, the way people name a Service.
func (id ServiceID) String() string { return id.Namespace + "/" + id.Name }

// APIServer reports whether it is the Service of the API servers, which each of them keeps itself.
func (id ServiceID) APIServer() bool { return id.Namespace == "default" && id.Name == "kubernetes" }

// Compare orders by namespace, name, origin.
func (id ServiceID) Compare(o ServiceID) int {
	return cmp.Or(
		cmp.Compare(id.Namespace, o.Namespace),
		cmp.Compare(id.Name, o.Name),
		cmp.Compare(id.Origin.Rank(), o.Origin.Rank()),
		cmp.Compare(id.Origin, o.Origin),
	)
}

// Service is what we read of a v1.Service.
type Service struct {
	ID ServiceID
	// Created is metadata.creationTimestamp; the zero time where a manifest has
	// none. It decides who keeps an address that two Services claim.
	Created time.Time
	// Type is spec.type: ClusterIP, NodePort, LoadBalancer or ExternalName.
	Type string
	// Headless: spec.clusterIP is "None".
	Headless bool
	// ProxyName is the label service.kubernetes.io/service-proxy-name, and
	// HasProxyName that it is there: another proxy serves this Service.
	ProxyName    string
	HasProxyName bool
	// DNS: it is in kube-system and has the label k8s-app: kube-dns, by which distributions
	// mark the DNS Service of the cluster.
	DNS bool
	// ClusterIPs are spec.clusterIPs (or spec.clusterIP), at most one a family.
	ClusterIPs []netip.Addr
	Ports      []ServicePort
	// Affinity is the ClientIP session affinity time-out; 0 without affinity.
	Affinity time.Duration
	// InternalLocal: spec.internalTrafficPolicy is Local.
	InternalLocal bool
	// ExternalLocal: spec.externalTrafficPolicy is Local, and the type of the
	// Service lets it count.
	ExternalLocal bool
	// ExternalIPs are spec.externalIPs, in their order.
	ExternalIPs []netip.Addr
	// Ingress are the entries of status.loadBalancer.ingress that have an address,
	// in their order, for type LoadBalancer only.
	Ingress []Ingress
	// SourceRanges are spec.loadBalancerSourceRanges, masked, sorted and unique; empty
	// admits all clients.
	SourceRanges []netip.Prefix
	// HealthCheckNodePort is spec.healthCheckNodePort where it counts: type
	// LoadBalancer and ExternalLocal; else 0.
	HealthCheckNodePort uint16
	// Policy is what its annotations ask for; nil where none of ours could be read.
	Policy *Policy
	// BadAnnotations has a sentence for each annotation of ours that could not be used.
	BadAnnotations []string
	// Problems has a sentence for each other field of the object that could not be used.
	Problems []string
}

// ServicePort is one entry of spec.ports.
type ServicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
	// NodePort is the port on the node's own addresses, 0 without one.
	NodePort uint16
}

// Ingress is one address of a load balancer.
type Ingress struct {
	Addr netip.Addr
	// Proxy: ipMode is Proxy, so traffic has to pass through the load balancer and
	// the address is none of ours (KEP-1860).
	Proxy bool
}

// Equal reports whether two Services mean the same.
func (s Service) Equal(o Service) bool {
	return s.ID == o.ID && s.Created.Equal(o.Created) && s.Type == o.Type && s.Headless == o.Headless &&
		s.ProxyName == o.ProxyName && s.HasProxyName == o.HasProxyName && s.DNS == o.DNS &&
		s.Affinity == o.Affinity && s.InternalLocal == o.InternalLocal &&
		s.ExternalLocal == o.ExternalLocal && s.HealthCheckNodePort == o.HealthCheckNodePort && s.Policy.Equal(o.Policy) &&
		slices.Equal(s.ClusterIPs, o.ClusterIPs) && slices.Equal(s.Ports, o.Ports) &&
		slices.Equal(s.ExternalIPs, o.ExternalIPs) && slices.Equal(s.Ingress, o.Ingress) &&
		slices.Equal(s.SourceRanges, o.SourceRanges) && slices.Equal(s.BadAnnotations, o.BadAnnotations) && slices.Equal(s.Problems, o.Problems)
}

// SliceID identifies an EndpointSlice within the agent.
type SliceID struct {
	Origin    Origin
	Namespace string
	Name      string
}

// String prints namespace/name.
func (id SliceID) String() string { return id.Namespace + "/" + id.Name }

// Slice is what we read of a discovery/v1 EndpointSlice.
type Slice struct {
	ID SliceID
	// Service is the owner: the label kubernetes.io/service-name, in the
	// namespace and origin of the slice.
	Service ServiceID
	// Family is addressType; 0 for FQDN, whose endpoints are never used.
	Family    Family
	Ports     []SlicePort
	Endpoints []Endpoint
	// Triggered is when the change began that led to this version of the slice (annotation
	// endpoints.kubernetes.io/last-change-trigger-time), or the zero time without that annotation.
	// Two slices that differ in it alone mean the same.
	Triggered time.Time
	// Weight is the weight of its endpoints where their Node has none (kube-ipvs.io/weight);
	// nil leaves it to the Service.
	Weight *uint16
	// BadAnnotations has a sentence for each annotation of ours that could not be used.
	BadAnnotations []string
	// Problems has a sentence for each other field of the object that could not be used.
	Problems []string
}

// SlicePort is one entry of ports; its name joins it to a ServicePort.
type SlicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Endpoint is one entry of endpoints with its first address, the only one that
// has a meaning (discovery/v1 Endpoint.addresses).
type Endpoint struct {
	Addr netip.Addr
	// Node is nodeName, empty when unknown.
	Node string
	// Ready, Serving and Terminating are the conditions with the API's defaults
	// filled in: nil counts as ready and serving, and as not terminating.
	Ready, Serving, Terminating bool
	// Hints are the zones and nodes that the endpoint is for; nil is all.
	Hints *Hints
}

// Hints are the names in hints.forZones and hints.forNodes.
type Hints struct{ Zones, Nodes []string }

// ZoneHints are the zones that the endpoint is meant for.
func (e Endpoint) ZoneHints() []string {
	if e.Hints == nil {
		return nil
	}
	return e.Hints.Zones
}

// NodeHints are the Nodes that the endpoint is meant for.
func (e Endpoint) NodeHints() []string {
	if e.Hints == nil {
		return nil
	}
	return e.Hints.Nodes
}

// Equal reports whether two endpoints mean the same.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Addr == o.Addr && e.Node == o.Node &&
		e.Ready == o.Ready && e.Serving == o.Serving && e.Terminating == o.Terminating &&
		(e.Hints == o.Hints || slices.Equal(e.ZoneHints(), o.ZoneHints()) && slices.Equal(e.NodeHints(), o.NodeHints()))
}

// Equal reports whether two slices mean the same.
func (s Slice) Equal(o Slice) bool {
	return s.ID == o.ID && s.Service == o.Service && s.Family == o.Family &&
		slices.Equal(s.Ports, o.Ports) && slices.EqualFunc(s.Endpoints, o.Endpoints, Endpoint.Equal) &&
		same(s.Weight, o.Weight) && slices.Equal(s.BadAnnotations, o.BadAnnotations) && slices.Equal(s.Problems, o.Problems)
}

// Node is what we read of a v1.Node.
type Node struct {
	Name string
	// Zone is the label topology.kubernetes.io/zone.
	Zone string
	// PodCIDRs are spec.podCIDRs, at most one a family.
	PodCIDRs []netip.Prefix
	// Addresses are the InternalIPs of status.addresses, then the ExternalIPs.
	Addresses []netip.Addr
	// Leaving: the machine is about to be taken away (a deletionTimestamp, or the
	// taint ToBeDeletedByClusterAutoscaler), so load balancers are to look elsewhere
	// (KEP-3836).
	Leaving bool
	// Weight is the weight of the endpoints on this Node (kube-ipvs.io/weight); nil leaves it
	// to their slice or Service.
	Weight *uint16
	// BadAnnotations has a sentence for each annotation of ours that could not be used.
	BadAnnotations []string
	// Problems has a sentence for each other field of the object that could not be used.
	Problems []string
}

// Equal reports whether two nodes mean the same.
func (n Node) Equal(o Node) bool {
	return n.Name == o.Name && n.Zone == o.Zone && n.Leaving == o.Leaving &&
		slices.Equal(n.PodCIDRs, o.PodCIDRs) && slices.Equal(n.Addresses, o.Addresses) &&
		same(n.Weight, o.Weight) && slices.Equal(n.BadAnnotations, o.BadAnnotations) && slices.Equal(n.Problems, o.Problems)
}
