package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// binding is one address and port on which a Service answers, before it is
// known who stands behind it.
type binding struct {
	key  model.FrontendKey
	port model.ServicePort
}

// notOurs says why a Service is none of our business, empty if it is ours: the
// same three that kube-proxy leaves alone. The sources filter most of them; file
// input and a label that is added later get here.
func notOurs(svc *model.Service) string {
	switch {
	case svc.HasProxyName:
		return "label service.kubernetes.io/service-proxy-name=" + svc.ProxyName + ": another proxy serves it"
	case svc.Type == "ExternalName":
		return "type ExternalName: clients are sent to a DNS name"
	case svc.Headless:
		return "headless: clients reach the endpoints directly"
	}
	return ""
}

// unusable says why nothing of a Service that is ours can be served: what the
// source could not read of it, and what was found on the way here.
func unusable(svc *model.Service, found notes) string {
	reasons := slices.Concat(found, svc.Problems)
	if len(svc.ClusterIPs) == 0 {
		reasons = append(reasons, "no cluster IP")
	}
	if len(svc.Ports) == 0 {
		reasons = append(reasons, "no ports")
	}
	return strings.Join(reasons.sorted(), "; ")
}

// bind lists the cluster IPs times the ports, sorted by key and unique, and
// notes which of them cannot be served.
func (j *job) bind() []binding {
	out := make([]binding, 0, len(j.svc.ClusterIPs)*len(j.svc.Ports))
	for _, addr := range j.svc.ClusterIPs {
		if why := j.refuse(addr); why != "" {
			j.notes.addf("cluster IP %s is not served: %s", addr, why)
			continue
		}
		out = j.bindPorts(out, addr)
	}
	kept, dropped := sortUnique(out)
	for _, b := range dropped {
		j.notes.addf("%s is listed twice: port %q does not answer there", b.key, b.port.Name)
	}
	return kept
}

// bindPorts appends one binding for each port of the Service.
func (j *job) bindPorts(out []binding, addr netip.Addr) []binding {
	for _, p := range j.svc.Ports {
		if p.Port == 0 {
			j.notes.addf("port %q is not served: it has no number", p.Name)
			continue
		}
		key := model.FrontendKey{Addr: addr, Port: p.Port, Protocol: p.Protocol}
		out = append(out, binding{key: key, port: p})
	}
	return out
}

// compareKeys orders bindings as the frontends of a plan are ordered. The port
// name only decides between two ports that an object lists with one number.
func compareKeys(a, b binding) int {
	return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.port.Name, b.port.Name))
}

// sortUnique sorts the bindings and keeps the first of each key; it returns
// the ones left out as well.
func sortUnique(all []binding) (kept, dropped []binding) {
	slices.SortFunc(all, compareKeys)
	kept = all[:0]
	for _, b := range all {
		if n := len(kept); n > 0 && kept[n-1].key == b.key {
			dropped = append(dropped, b)
			continue
		}
		kept = append(kept, b)
	}
	return kept, dropped
}

// refuse says why this node does not answer on an address, empty if it does.
func (j *job) refuse(addr netip.Addr) string {
	if why := special(addr); why != "" {
		return why
	}
	if f := model.FamilyOf(addr); !j.opts.serves(f) {
		return fmt.Sprintf("this node does not serve %s", f)
	}
	return ""
}

// special names what makes an address unfit for a Service, empty if it is fit.
// For endpoints this is the rule of the API (ValidateNonSpecialIP of Kubernetes),
// which nobody applied to a file. As the front of a Service such an address,
// bound on a node, would catch traffic that is not meant for Services at all.
func special(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return "not an IP address"
	case addr.Is4In6():
		return "an IPv4-mapped IPv6 address"
	case addr.IsUnspecified():
		return "the unspecified address"
	case addr.IsLoopback():
		return "a loopback address"
	case addr.IsLinkLocalUnicast():
		return "a link-local address"
	case addr.IsMulticast():
		return "a multicast address"
	case addr.Zone() != "":
		return "an address with a zone"
	}
	return ""
}
