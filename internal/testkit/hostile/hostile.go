// Package hostile builds the objects of a tenant who wants to slow down a node. These are Services
// with many ports, source ranges, addresses and endpoints, and many Services that claim one
// address.
package hostile

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Tenant has the number of objects of each kind. The zero value is one Service with one port.
type Tenant struct {
	// Ports, Ranges, Addresses and Endpoints are those of each Service; Addresses are
	// external IPs, and each Service has the same ones.
	Ports, Ranges, Addresses, Endpoints int
	// Claimants is how many Services there are.
	Claimants int
	// Local: both policies are Local.
	Local bool
}

// endpointsOfSlice is how many the controller of EndpointSlices puts into one.
const endpointsOfSlice = 100

// Size is about how many bytes it has as YAML.
func (t Tenant) Size() int {
	service := 300 + 30*t.Ports + 20*t.Ranges + 16*t.Addresses
	slices := (t.Endpoints + endpointsOfSlice - 1) / endpointsOfSlice
	return max(1, t.Claimants) * (service + slices*(200+30*t.Ports) + 100*t.Endpoints)
}

// Deliver hands everything to a sink, complete.
func (t Tenant) Deliver(sink source.Sink) {
	for i := range max(1, t.Claimants) {
		id := model.ServiceID{Origin: model.FromFile, Namespace: "tenant", Name: fmt.Sprintf("s%d", i)}
		s := t.service(i)
		s.ID = id
		sink.SetService(s)
		for first := 0; first < t.Endpoints; first += endpointsOfSlice {
			sink.SetSlice(t.slice(id, first))
		}
	}
	sink.SetState(model.FromFile, source.Complete)
}

func (t Tenant) service(i int) model.Service {
	s := model.Service{
		Created: time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC), Type: "LoadBalancer",
		ClusterIPs:    []netip.Addr{addr("10.96.0.1", i)},
		Ingress:       []model.Ingress{{Addr: netip.MustParseAddr("198.51.100.1")}},
		InternalLocal: t.Local, ExternalLocal: t.Local,
	}
	for p := range max(1, t.Ports) {
		s.Ports = append(s.Ports, model.ServicePort{Name: fmt.Sprintf("p%d", p), Protocol: model.TCP, Port: uint16(1 + p)})
	}
	for a := range t.Addresses {
		s.ExternalIPs = append(s.ExternalIPs, addr("100.64.0.1", a))
	}
	for r := range t.Ranges {
		s.SourceRanges = append(s.SourceRanges, netip.PrefixFrom(addr("20.0.0.0", r), 32))
	}
	return s
}

func (t Tenant) slice(id model.ServiceID, first int) model.Slice {
	s := model.Slice{
		ID:      model.SliceID{Origin: id.Origin, Namespace: id.Namespace, Name: fmt.Sprintf("%s-%d", id.Name, first)},
		Service: id, Family: model.IPv4,
	}
	for p := range max(1, t.Ports) {
		s.Ports = append(s.Ports, model.SlicePort{Name: fmt.Sprintf("p%d", p), Protocol: model.TCP, Port: 8080})
	}
	for e := first; e < min(first+endpointsOfSlice, t.Endpoints); e++ {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: addr("172.16.0.1", e), Ready: true, Serving: true, Node: "node-a"})
	}
	return s
}

// addr is the nth address after a first one.
func addr(first string, n int) netip.Addr {
	a := netip.MustParseAddr(first).As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(n))
	return netip.AddrFrom4(a)
}
