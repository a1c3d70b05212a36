// Package build makes model values for tests, in the words of a table row:
//
//	svc := build.Service("web", build.IPs("10.96.0.1"), build.Port("http", 80))
//	slice := build.Slice("web", "web-a", build.Target("http", 8080),
//		build.Endpoints(build.Ready("10.244.0.1", "node-a")))
//
// Names without a namespace are in "default", everything comes from Kubernetes
// and ports are TCP unless said otherwise. Addresses that do not parse panic.
package build

import (
	"net/netip"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// ID names a Service: "web" or "shop/web".
func ID(name string) model.ServiceID {
	ns, n := split(name)
	return model.ServiceID{Origin: model.FromKube, Namespace: ns, Name: n}
}

func split(name string) (namespace, rest string) {
	if ns, n, ok := strings.Cut(name, "/"); ok {
		return ns, n
	}
	return "default", name
}

// Service makes a ClusterIP Service and applies the options to it.
func Service(name string, opts ...func(*model.Service)) *model.Service {
	s := &model.Service{ID: ID(name), Type: "ClusterIP"}
	for _, o := range opts {
		o(s)
	}
	return s
}

// IPs sets spec.clusterIPs.
func IPs(addrs ...string) func(*model.Service) {
	return func(s *model.Service) {
		for _, a := range addrs {
			s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr(a))
		}
	}
}

// Port adds a TCP port.
func Port(name string, port uint16) func(*model.Service) {
	return PortOver(model.TCP, name, port)
}

// PortOver adds a port of any protocol.
func PortOver(proto model.Protocol, name string, port uint16) func(*model.Service) {
	return func(s *model.Service) {
		s.Ports = append(s.Ports, model.ServicePort{Name: name, Protocol: proto, Port: port})
	}
}

// Affinity turns on ClientIP session affinity.
func Affinity(d time.Duration) func(*model.Service) {
	return func(s *model.Service) { s.Affinity = d }
}

// InternalLocal sets internalTrafficPolicy Local.
func InternalLocal() func(*model.Service) {
	return func(s *model.Service) { s.InternalLocal = true }
}

// Created sets metadata.creationTimestamp.
func Created(t time.Time) func(*model.Service) {
	return func(s *model.Service) { s.Created = t }
}
