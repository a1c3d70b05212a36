package build

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Slice makes a slice of a Service, in the namespace of that Service. Its
// family is the family of its first endpoint, IPv4 without endpoints.
func Slice(service, name string, opts ...func(*model.Slice)) model.Slice {
	owner := ID(service)
	s := model.Slice{
		ID:      model.SliceID{Origin: owner.Origin, Namespace: owner.Namespace, Name: name},
		Service: owner,
	}
	for _, o := range opts {
		o(&s)
	}
	if s.Family == 0 {
		s.Family = guessFamily(s.Endpoints)
	}
	return s
}

func guessFamily(eps []model.Endpoint) model.Family {
	if len(eps) == 0 {
		return model.IPv4
	}
	return model.FamilyOf(eps[0].Addr)
}

// Family sets the address type.
func Family(f model.Family) func(*model.Slice) {
	return func(s *model.Slice) { s.Family = f }
}

// Target adds a TCP port.
func Target(name string, port uint16) func(*model.Slice) {
	return TargetOver(model.TCP, name, port)
}

// TargetOver adds a port of any protocol.
func TargetOver(proto model.Protocol, name string, port uint16) func(*model.Slice) {
	return func(s *model.Slice) {
		s.Ports = append(s.Ports, model.SlicePort{Name: name, Protocol: proto, Port: port})
	}
}

// Endpoints adds endpoints.
func Endpoints(eps ...model.Endpoint) func(*model.Slice) {
	return func(s *model.Slice) { s.Endpoints = append(s.Endpoints, eps...) }
}

// Ready is an endpoint that takes new connections.
func Ready(addr, node string) model.Endpoint {
	return model.Endpoint{Addr: netip.MustParseAddr(addr), Node: node, Ready: true, Serving: true}
}

// Unready is an endpoint that does not serve and is not on its way out.
func Unready(addr, node string) model.Endpoint {
	return model.Endpoint{Addr: netip.MustParseAddr(addr), Node: node}
}

// Leaving is a terminating endpoint that still serves.
func Leaving(addr, node string) model.Endpoint {
	return model.Endpoint{Addr: netip.MustParseAddr(addr), Node: node, Serving: true, Terminating: true}
}

// Dead is a terminating endpoint that no longer serves.
func Dead(addr, node string) model.Endpoint {
	return model.Endpoint{Addr: netip.MustParseAddr(addr), Node: node, Terminating: true}
}

// ForZones returns the endpoint with these zone hints.
func ForZones(e model.Endpoint, zones ...string) model.Endpoint {
	e.Hints = &model.Hints{Zones: zones, Nodes: e.NodeHints()}
	return e
}

// ForNodes returns the endpoint with these node hints.
func ForNodes(e model.Endpoint, nodes ...string) model.Endpoint {
	e.Hints = &model.Hints{Zones: e.ZoneHints(), Nodes: nodes}
	return e
}
