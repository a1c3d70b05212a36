package source

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Slice reads what we use of a discovery/v1 EndpointSlice. It never fails: a field that
// cannot be used is left out and named in Problems. A slice that belongs to no
// Service, or to a headless one, has no endpoints.
func Slice(origin model.Origin, in *discoveryv1.EndpointSlice) model.Slice {
	var p problems
	out := model.Slice{ID: model.SliceID{Origin: origin, Namespace: namespaceOf(&in.ObjectMeta), Name: in.Name}}
	if p.checkMeta(&in.ObjectMeta, true, maxSubdomain) && p.wanted(in) {
		out.Service = model.ServiceID{Origin: origin, Namespace: out.ID.Namespace, Name: in.Labels[discoveryv1.LabelServiceName]}
		out.Family = p.addressType(in.AddressType)
		out.Ports = p.slicePorts(in.Ports)
		out.Endpoints = p.endpoints(out.Family, in.Endpoints)
		out.Triggered = triggered(in)
		asked := annotations{of: in.Annotations}
		out.Weight = asked.onlyWeight("an EndpointSlice", "that of the Service is used")
		out.BadAnnotations = asked.done()
	}
	out.Problems = p.done()
	return out
}

// triggered reads when the change behind the slice began. It is only used for metrics, so an
// unreadable value is no error.
func triggered(in *discoveryv1.EndpointSlice) time.Time {
	t, err := time.Parse(time.RFC3339Nano, in.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{}
	}
	return t
}

// wanted reports whether the labels make the slice one of a Service with cluster IPs. As
// kube-proxy, the agent does not watch slices with label service.kubernetes.io/headless.
func (p *problems) wanted(in *discoveryv1.EndpointSlice) bool {
	if _, headless := in.Labels[corev1.IsHeadlessService]; headless {
		p.add("metadata.labels["+corev1.IsHeadlessService+"]", "the slice belongs to a headless Service and is not used")
		return false
	}
	field := "metadata.labels[" + discoveryv1.LabelServiceName + "]"
	name := in.Labels[discoveryv1.LabelServiceName]
	if name == "" {
		p.add(field, "missing: the slice belongs to no Service")
		return false
	}
	return p.checkName(field, name, maxLabel)
}

// addressType returns 0 for a slice whose endpoints cannot be used.
func (p *problems) addressType(t discoveryv1.AddressType) model.Family {
	family, ok := model.ParseFamily(string(t))
	switch {
	case ok:
	case t == discoveryv1.AddressTypeFQDN:
		p.add("addressType", "FQDN: host names are not served, no endpoint is used")
	case t == "":
		p.add("addressType", "missing: no endpoint is used")
	default:
		p.add("addressType", "%s is not IPv4 or IPv6: no endpoint is used", quote(string(t)))
	}
	return family
}

func (p *problems) slicePorts(in []discoveryv1.EndpointPort) []model.SlicePort {
	out := make([]model.SlicePort, 0, len(in))
	for i := range in {
		port, ok := p.slicePort(at("ports", i), &in[i])
		if !ok {
			continue
		}
		same := func(h model.SlicePort) bool { return h.Name == port.Name && h.Protocol == port.Protocol }
		if slices.ContainsFunc(out, same) {
			p.add(at("ports", i)+".name", "%s is there already", quote(port.Name))
			continue
		}
		out = append(out, port)
	}
	return slices.Clip(out)
}

// slicePort reads one port; one without a number is not used. No name is the
// empty name, as the API server has it (discovery/v1 EndpointPort.name).
func (p *problems) slicePort(field string, in *discoveryv1.EndpointPort) (out model.SlicePort, ok bool) {
	if in.Port == nil {
		p.add(field+".port", "missing: the port is not used")
		return out, false
	}
	name := ""
	if in.Name != nil {
		name = *in.Name
	}
	ok = p.portName(field+".name", name)
	ok = p.portNumber(field+".port", *in.Port) && ok
	proto := corev1.ProtocolTCP
	if in.Protocol != nil {
		proto = *in.Protocol
	}
	parsed, err := model.ParseProtocol(string(proto))
	if err != nil {
		p.add(field+".protocol", "%s is not TCP, UDP or SCTP", quote(string(proto)))
	}
	if !ok || err != nil {
		return out, false
	}
	return model.SlicePort{Name: name, Protocol: parsed, Port: uint16(*in.Port)}, true
}

func (p *problems) endpoints(family model.Family, in []discoveryv1.Endpoint) []model.Endpoint {
	if family == 0 || len(in) == 0 {
		return nil
	}
	out := make([]model.Endpoint, 0, len(in))
	for i := range in {
		if ep, ok := p.endpoint(family, i, &in[i]); ok {
			out = append(out, ep)
		}
	}
	return slices.Clip(out)
}

func (p *problems) endpoint(family model.Family, i int, in *discoveryv1.Endpoint) (out model.Endpoint, ok bool) {
	if len(in.Addresses) == 0 {
		p.add(at("endpoints", i)+".addresses", "missing: the endpoint is not used")
		return out, false
	}
	if n := len(in.Addresses); n > 1 {
		p.add(at("endpoints", i)+".addresses", "%d addresses, only the first is used", n)
	}
	addr, ok := p.addr(at("endpoints", i)+".addresses[0]", in.Addresses[0], func(a netip.Addr) string {
		if reason := unicast(a); reason != "" || model.FamilyOf(a.Unmap()) == family {
			return reason
		}
		return "is not " + family.String() + ", the addressType of the slice"
	})
	if !ok {
		return out, false
	}
	out = model.Endpoint{
		Addr:        addr,
		Ready:       or(in.Conditions.Ready, true),
		Serving:     or(in.Conditions.Serving, true),
		Terminating: or(in.Conditions.Terminating, false),
	}
	if in.NodeName != nil {
		out.Node = *in.NodeName
	}
	out.Hints = hints(in.Hints)
	return out, true
}

func or(b *bool, unset bool) bool {
	if b == nil {
		return unset
	}
	return *b
}

func hints(in *discoveryv1.EndpointHints) *model.Hints {
	if in == nil || len(in.ForZones)+len(in.ForNodes) == 0 {
		return nil
	}
	out := &model.Hints{}
	for _, z := range in.ForZones {
		out.Zones = append(out.Zones, z.Name)
	}
	for _, n := range in.ForNodes {
		out.Nodes = append(out.Nodes, n.Name)
	}
	return out
}
