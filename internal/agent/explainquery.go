package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// A Query asks about one Service or one address.
type Query struct {
	// Service is namespace/name; empty is a query about an address.
	Service string
	// Address is the destination that a client dials, or the address of a backend. Port 0 is all of its
	// ports, Protocol 0 all protocols.
	Address  netip.Addr
	Port     uint16
	Protocol model.Protocol
	// From is the source of packets; for the zero Addr the report has the path from each origin.
	From netip.Addr
}

// String returns the text that ParseQuery reads, without From.
func (q Query) String() string {
	switch {
	case q.Service != "":
		return q.Service
	case q.Port == 0:
		return q.Address.String()
	case q.Protocol == 0:
		return netip.AddrPortFrom(q.Address, q.Port).String()
	}
	return model.FrontendKey{Addr: q.Address, Port: q.Port, Protocol: q.Protocol}.String()
}

// ParseQuery reads namespace/name, or ip[:port[/protocol]]. A name without a namespace is one in the
// namespace default. from is the source of packets, or empty.
func ParseQuery(text, from string) (q Query, err error) {
	if from != "" {
		if q.From, err = netip.ParseAddr(from); err != nil {
			return q, fmt.Errorf("%q is not an IP address", from)
		}
		q.From = q.From.Unmap()
	}
	rest, proto, named := strings.Cut(text, "/")
	addr, port, isAddr := parseAddress(rest)
	if !isAddr {
		if !named {
			rest, proto = "default", text
		}
		if rest == "" || proto == "" || strings.ContainsAny(proto, "/:") {
			return q, fmt.Errorf("%q is neither namespace/name nor ip[:port[/protocol]]", text)
		}
		q.Service = rest + "/" + proto
		return q, nil
	}
	q.Address, q.Port = addr, port
	if named {
		if q.Protocol, err = model.ParseProtocol(cmp.Or(strings.ToUpper(proto), "?")); err != nil {
			return q, err
		}
	}
	return q, nil
}

// parseAddress reads an address with a port or without.
func parseAddress(text string) (netip.Addr, uint16, bool) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return a.Unmap(), 0, true
	}
	ap, err := netip.ParseAddrPort(text)
	return ap.Addr().Unmap(), ap.Port(), err == nil
}

// concerns reports whether a Service may have to do with the query: it is the Service, or has the address
// or the NodePort, or an endpoint there.
func (q Query) concerns(s *model.Service, behind []*model.Slice) bool {
	if q.Service != "" {
		return s.ID.String() == q.Service
	}
	has := func(a netip.Addr) bool { return a == q.Address }
	return slices.ContainsFunc(s.ClusterIPs, has) || slices.ContainsFunc(s.ExternalIPs, has) ||
		slices.ContainsFunc(s.Ingress, func(in model.Ingress) bool { return has(in.Addr) }) ||
		q.Port != 0 && slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool { return p.NodePort == q.Port }) ||
		slices.ContainsFunc(behind, func(sl *model.Slice) bool { return q.behind(sl) })
}

// behind reports whether a slice has the address as an endpoint.
func (q Query) behind(s *model.Slice) bool {
	return slices.ContainsFunc(s.Endpoints, func(e model.Endpoint) bool { return e.Addr == q.Address }) &&
		(q.Port == 0 || slices.ContainsFunc(s.Ports, func(p model.SlicePort) bool { return p.Port == q.Port }))
}

// concernsAddress reports whether a Service has to do with the address of the query, whatever its
// NodePorts.
func (q Query) concernsAddress(in catalog.Input) bool {
	q.Port = 0
	behind := make([]*model.Slice, len(in.Slices))
	for i := range in.Slices {
		behind[i] = &in.Slices[i]
	}
	return q.concerns(in.Service, behind)
}

// matches reports whether the query asks about a frontend: all of a Service, or those at the address or
// with it as a backend.
func (q Query) matches(f *model.Frontend) bool {
	return q.asks(f.Key) || (q.Protocol == 0 || q.Protocol == f.Key.Protocol) &&
		slices.ContainsFunc(f.Backends, func(b model.Backend) bool {
			return b.Addr.Addr() == q.Address && (q.Port == 0 || q.Port == b.Addr.Port())
		})
}

// asks reports whether the query asks about a key: all of a Service, or those at the address.
func (q Query) asks(k model.FrontendKey) bool {
	return q.Service != "" ||
		(q.Protocol == 0 || q.Protocol == k.Protocol) && k.Addr == q.Address && (q.Port == 0 || q.Port == k.Port)
}
