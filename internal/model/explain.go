package model

import (
	"fmt"
	"net/netip"
	"strings"
)

// Use is the state of an endpoint under one policy.
type Use string

// The uses.
const (
	// UseBackend takes new connections.
	UseBackend Use = "used"
	// UseDrained is a backend of weight 0: it gets no new connections. An annotation, a
	// Node or failed probes of an API server set that weight.
	UseDrained Use = "drained"
	// UseKept gets no new connections, and keeps its existing ones (Frontend.Kept).
	UseKept Use = "kept"
	// UseNone is no backend.
	UseNone Use = "unused"
)

// Backend reports whether the endpoint is among Frontend.Backends.
func (u Use) Backend() bool { return u == UseBackend || u == UseDrained }

// Verdict is the state of an endpoint under one policy, and the reason.
type Verdict struct {
	Use Use `json:"use"`
	// Why is in words, empty for an endpoint that is used like any other.
	Why string `json:"why,omitempty"`
	// Weight is the weight of a backend.
	Weight uint16 `json:"weight"`
}

// EndpointStory is one endpoint behind one port of a Service, as one slice lists it.
type EndpointStory struct {
	Address netip.AddrPort `json:"address"`
	// Slice and Node name where it is listed and where it runs; Node may be empty.
	Slice string `json:"slice"`
	Node  string `json:"node,omitempty"`
	// Ready, Serving and Terminating are its conditions.
	Ready       bool `json:"ready"`
	Serving     bool `json:"serving"`
	Terminating bool `json:"terminating"`
	// Cluster and Local are the verdicts under the two traffic policies; nil if no frontend of the
	// port has that policy.
	Cluster *Verdict `json:"cluster,omitempty"`
	Local   *Verdict `json:"local,omitempty"`
}

// Of is the verdict of one policy; nil where no frontend has it.
func (e EndpointStory) Of(local bool) *Verdict {
	if local {
		return e.Local
	}
	return e.Cluster
}

// PortStory has the endpoints of one port of a Service in one family.
type PortStory struct {
	Family   string `json:"family"`
	Name     string `json:"name,omitempty"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
	// Endpoints are all that any slice lists for the family, used or not, by address.
	Endpoints []EndpointStory `json:"endpoints"`
}

// Backends counts the endpoints that one policy uses for new connections.
func (p PortStory) Backends(local bool) (n int) {
	for _, e := range p.Endpoints {
		if v := e.Of(local); v != nil && v.Use == UseBackend {
			n++
		}
	}
	return n
}

// ParseFrontendKey reads what FrontendKey.String prints.
func ParseFrontendKey(text string) (FrontendKey, error) {
	at, proto, _ := strings.Cut(text, "/")
	ap, err := netip.ParseAddrPort(at)
	if err != nil {
		return FrontendKey{}, fmt.Errorf("frontend %q: %w", text, err)
	}
	p, err := ParseProtocol(strings.ToUpper(proto))
	if err != nil {
		return FrontendKey{}, fmt.Errorf("frontend %q: %w", text, err)
	}
	return FrontendKey{Addr: ap.Addr(), Port: ap.Port(), Protocol: p}, nil
}
