package source

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

const (
	// labelProxyName hands a Service to another proxy, whatever its value.
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	// labelApp marks the cluster's DNS. It counts in kube-system alone, where no tenant may
	// create Services.
	labelApp = "k8s-app"
)

// The bounds of sessionAffinityConfig.clientIP.timeoutSeconds (v1 ClientIPConfig).
const (
	defaultAffinity = corev1.DefaultClientIPServiceAffinitySeconds
	maxAffinity     = int32(86400)
)

// Service reads what we use of a v1 Service. It never fails: a field that cannot be
// used is left out and named in Problems. A Service whose name is unusable has
// neither addresses nor ports.
func Service(origin model.Origin, in *corev1.Service) model.Service {
	var p problems
	out := model.Service{
		ID:      model.ServiceID{Origin: origin, Namespace: namespaceOf(&in.ObjectMeta), Name: in.Name},
		Created: in.CreationTimestamp.Time,
		Type:    p.serviceType(in.Spec.Type),
	}
	out.ProxyName, out.HasProxyName = in.Labels[labelProxyName]
	out.DNS = in.Labels[labelApp] == "kube-dns" && out.ID.Namespace == "kube-system"
	if p.checkMeta(&in.ObjectMeta, true, maxLabel) {
		out.ClusterIPs, out.Headless = p.clusterIPs(&in.Spec)
		out.Ports = p.servicePorts(out.Type, in.Spec.Ports)
		out.Affinity = p.affinity(&in.Spec)
		out.InternalLocal = p.internalLocal(in.Spec.InternalTrafficPolicy)
		p.external(&out, in)
		asked := annotations{of: in.Annotations}
		out.Policy, out.BadAnnotations = asked.policy(), asked.done()
	}
	out.Problems = p.done()
	return out
}

func (p *problems) serviceType(t corev1.ServiceType) string {
	switch t {
	case "":
		return string(corev1.ServiceTypeClusterIP)
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName:
		return string(t)
	}
	p.add("spec.type", "%s is not a type of Service, taken as ClusterIP", quote(string(t)))
	return string(corev1.ServiceTypeClusterIP)
}

// clusterIPs reads spec.clusterIPs, or spec.clusterIP where the list is empty.
// The family of an address is its own; spec.ipFamilies can only contradict it.
func (p *problems) clusterIPs(spec *corev1.ServiceSpec) (out []netip.Addr, headless bool) {
	field, list := at("spec.clusterIPs", 0), spec.ClusterIPs
	switch {
	case len(list) == 0 && spec.ClusterIP == "":
		return nil, false
	case len(list) == 0:
		field, list = "spec.clusterIP", []string{spec.ClusterIP}
	case spec.ClusterIP != "" && spec.ClusterIP != list[0]:
		p.add("spec.clusterIP", "%s differs from spec.clusterIPs[0], which is used", quote(spec.ClusterIP))
	}
	if list[0] == corev1.ClusterIPNone {
		p.extraIPs(list, 1)
		return nil, true
	}
	for i, s := range list[:min(2, len(list))] {
		if i > 0 {
			field = at("spec.clusterIPs", i)
		}
		if a, ok := p.clusterIP(field, s, out); ok {
			p.checkFamily(spec.IPFamilies, i, a)
			out = append(out, a)
		}
	}
	p.extraIPs(list, 2)
	p.unmetFamilies(spec.IPFamilies, len(list))
	return out, false
}

func (p *problems) clusterIP(field, s string, have []netip.Addr) (netip.Addr, bool) {
	a, ok := p.addr(field, s, unicast)
	if !ok {
		return a, false
	}
	for _, h := range have {
		if model.FamilyOf(h) == model.FamilyOf(a) {
			p.add(field, "%s is a second %s address, only %s is used", a, model.FamilyOf(a), h)
			return a, false
		}
	}
	return a, true
}

// extraIPs names the addresses past the first n; a Service has one a family.
func (p *problems) extraIPs(list []string, n int) {
	for i := n; i < len(list); i++ {
		p.add(at("spec.clusterIPs", i), "%s is one address too many", quote(list[i]))
	}
}

func (p *problems) checkFamily(families []corev1.IPFamily, i int, a netip.Addr) {
	if i >= len(families) || string(families[i]) == model.FamilyOf(a).String() {
		return
	}
	p.add(at("spec.ipFamilies", i), "%s, but the address is %s", quote(string(families[i])), a)
}

// unmetFamilies names families for which no address is given: no API server is behind a file to
// allocate one.
func (p *problems) unmetFamilies(families []corev1.IPFamily, n int) {
	for i := n; i < len(families); i++ {
		p.add(at("spec.ipFamilies", i), "%s without an address in spec.clusterIPs[%d]", quote(string(families[i])), i)
	}
}

func (p *problems) servicePorts(svcType string, in []corev1.ServicePort) []model.ServicePort {
	out := make([]model.ServicePort, 0, len(in))
	have := portBook{map[portNumber]struct{}{}, map[string]struct{}{}, map[portNumber]struct{}{}}
	for i := range in {
		field := at("spec.ports", i)
		port, ok := p.servicePort(field, &in[i])
		if ok && p.newPort(field, port, have) {
			port.NodePort = p.nodePort(field+".nodePort", svcType, in[i].NodePort, port.Protocol, have)
			out = append(out, port)
		}
	}
	return slices.Clip(out)
}

func (p *problems) servicePort(field string, in *corev1.ServicePort) (model.ServicePort, bool) {
	proto, err := model.ParseProtocol(string(in.Protocol))
	if err != nil {
		p.add(field+".protocol", "%s is not TCP, UDP or SCTP", quote(string(in.Protocol)))
	}
	ok := p.portNumber(field+".port", in.Port) && err == nil
	ok = p.portName(field+".name", in.Name) && ok
	if !ok {
		return model.ServicePort{}, false
	}
	return model.ServicePort{Name: in.Name, Protocol: proto, Port: uint16(in.Port)}, true
}

// portBook has what the ports before have taken: there may be tens of thousands.
type portBook struct {
	numbers map[portNumber]struct{}
	names   map[string]struct{}
	nodes   map[portNumber]struct{} // node ports
}

type portNumber struct {
	protocol model.Protocol
	number   uint16
}

// newPort reports whether a port repeats neither the number nor the name of an earlier one. The
// name joins it to the slices, so two of one name are ambiguous.
func (p *problems) newPort(field string, port model.ServicePort, have portBook) bool {
	number := portNumber{port.Protocol, port.Port}
	if _, taken := have.numbers[number]; taken {
		p.add(field+".port", "%d/%s is there already", port.Port, port.Protocol)
		return false
	}
	if _, taken := have.names[port.Name]; taken {
		p.add(field+".name", "%s is there already", quote(port.Name))
		return false
	}
	have.numbers[number], have.names[port.Name] = struct{}{}, struct{}{}
	return true
}

func (p *problems) affinity(spec *corev1.ServiceSpec) time.Duration {
	switch spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		return 0
	case corev1.ServiceAffinityClientIP:
		return time.Duration(p.affinitySeconds(spec.SessionAffinityConfig)) * time.Second
	}
	p.add("spec.sessionAffinity", "%s is not None or ClientIP, taken as None", quote(string(spec.SessionAffinity)))
	return 0
}

func (p *problems) affinitySeconds(cfg *corev1.SessionAffinityConfig) int32 {
	if cfg == nil || cfg.ClientIP == nil || cfg.ClientIP.TimeoutSeconds == nil {
		return defaultAffinity
	}
	secs := *cfg.ClientIP.TimeoutSeconds
	if secs < 1 || secs > maxAffinity {
		p.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds",
			"%d is not within 1-%d, taken as %d", secs, maxAffinity, defaultAffinity)
		return defaultAffinity
	}
	return secs
}

func (p *problems) internalLocal(policy *corev1.ServiceInternalTrafficPolicy) bool {
	if policy == nil || *policy == "" || *policy == corev1.ServiceInternalTrafficPolicyCluster {
		return false
	}
	if *policy == corev1.ServiceInternalTrafficPolicyLocal {
		return true
	}
	p.add("spec.internalTrafficPolicy", "%s is not Cluster or Local, taken as Cluster", quote(string(*policy)))
	return false
}
