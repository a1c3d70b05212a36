package source

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// The types of Service that answer outside the cluster by themselves.
const (
	typeNodePort     = string(corev1.ServiceTypeNodePort)
	typeLoadBalancer = string(corev1.ServiceTypeLoadBalancer)
)

// external reads what a Service asks for beyond its cluster IPs. The API server
// keeps most of it in step with the type; a file may say anything.
func (p *problems) external(out *model.Service, in *corev1.Service) {
	out.ExternalIPs = p.externalIPs(in.Spec.ExternalIPs)
	out.ExternalLocal = p.externalLocal(in.Spec.ExternalTrafficPolicy) &&
		(out.Type == typeNodePort || out.Type == typeLoadBalancer ||
			out.Type == string(corev1.ServiceTypeClusterIP) && len(out.ExternalIPs) > 0)
	if out.Type != typeLoadBalancer {
		if len(in.Spec.LoadBalancerSourceRanges) > 0 {
			p.add(rangesField, "has no effect: the type is %s, not LoadBalancer", out.Type)
		}
		return
	}
	ranges := p.sourceRanges(in.Spec.LoadBalancerSourceRanges)
	out.SourceRanges = ranges.list()
	out.Ingress = p.close(p.ingress(in.Status.LoadBalancer.Ingress), ranges)
	if out.ExternalLocal {
		out.HealthCheckNodePort = p.healthCheckPort(in.Spec.HealthCheckNodePort)
	}
}

// nodePort reads spec.ports[].nodePort; 0 when none can be served. A LoadBalancer
// may do without one (allocateLoadBalancerNodePorts).
func (p *problems) nodePort(field, svcType string, n int32, proto model.Protocol, have portBook) uint16 {
	switch {
	case n == 0 && svcType == typeNodePort:
		p.add(field, "missing, and no API server is there to allocate one")
		return 0
	case n == 0:
		return 0
	case svcType != typeNodePort && svcType != typeLoadBalancer:
		p.add(field, "%d is not used: the type is %s", n, svcType)
		return 0
	case !p.portNumber(field, n):
		return 0
	}
	number := portNumber{proto, uint16(n)}
	if _, taken := have.nodes[number]; taken {
		p.add(field, "%d/%s is there already", n, proto)
		return 0
	}
	have.nodes[number] = struct{}{}
	return uint16(n)
}

func (p *problems) externalLocal(policy corev1.ServiceExternalTrafficPolicy) bool {
	switch policy {
	case corev1.ServiceExternalTrafficPolicyLocal:
		return true
	case "", corev1.ServiceExternalTrafficPolicyCluster:
	default:
		p.add("spec.externalTrafficPolicy", "%s is not Cluster or Local, taken as Cluster", quote(string(policy)))
	}
	return false
}

func (p *problems) externalIPs(in []string) (out []netip.Addr) {
	have := make(map[netip.Addr]struct{}, len(in))
	for i, s := range in {
		field := at("spec.externalIPs", i)
		a, ok := p.addr(field, s, unicast)
		if !ok {
			continue
		}
		if _, taken := have[a]; taken {
			p.add(field, "%s is there already", a)
			continue
		}
		have[a] = struct{}{}
		out = append(out, a)
	}
	return out
}

// ingress reads the addresses of the load balancer. Entries with a host name only
// are for the clients' resolvers.
func (p *problems) ingress(in []corev1.LoadBalancerIngress) (out []model.Ingress) {
	have := make(map[netip.Addr]struct{}, len(in))
	for i := range in {
		if in[i].IP == "" {
			continue
		}
		field := at("status.loadBalancer.ingress", i)
		a, addrOK := p.addr(field+".ip", in[i].IP, unicast)
		proxy, modeOK := p.ipMode(field+".ipMode", in[i].IPMode)
		if !addrOK || !modeOK {
			continue
		}
		if _, taken := have[a]; taken {
			p.add(field+".ip", "%s is there already", a)
			continue
		}
		have[a] = struct{}{}
		out = append(out, model.Ingress{Addr: a, Proxy: proxy})
	}
	return out
}

// ipMode reports whether the mode is Proxy. Under an unknown mode it is unclear whether the address
// may be used, so it is not used.
func (p *problems) ipMode(field string, mode *corev1.LoadBalancerIPMode) (proxy, ok bool) {
	switch {
	case mode == nil || *mode == "" || *mode == corev1.LoadBalancerIPModeVIP:
		return false, true
	case *mode == corev1.LoadBalancerIPModeProxy:
		return true, true
	}
	p.add(field, "%s is not VIP or Proxy: the address is not used", quote(string(*mode)))
	return false, false
}

func (p *problems) healthCheckPort(n int32) uint16 {
	if n == 0 || !p.portNumber("spec.healthCheckNodePort", n) {
		return 0
	}
	return uint16(n)
}
