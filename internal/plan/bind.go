package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// binding is one address and port on which a Service answers, before it is
// known who stands behind it.
type binding struct {
	key  model.FrontendKey
	kind model.Kind
	// port is a place in job.ports.
	port int
	// bind: the address is to be put on our link. capture: packets to the port are taken to
	// the virtual server without that.
	bind, capture bool
}

// bind lists every address and port on which the Service answers, sorted by key and unique, and
// notes which of them cannot be served. A Service without a cluster IP has no frontends.
func (j *job) bind() []binding {
	j.ports = j.usablePorts()
	j.groups = make([]group, len(j.sides)*len(j.ports))
	j.most = j.mostFrontends()
	out := make([]binding, 0, min(len(j.ports)*j.addresses(), j.most))
	for _, addr := range j.svc.ClusterIPs {
		out = j.bindAddr(out, model.KindClusterIP, addr)
	}
	if len(out) == 0 {
		return nil
	}
	// Frontends beyond the maximum are not served, so the stronger kinds come first.
	out = j.bindIngress(out)
	out = j.bindNodePorts(out)
	out = j.bindExternalIPs(out)
	out = j.bindDetours(out)
	return j.settle(out)
}

// take appends a binding, unless the Service has as many as it may have.
func (j *job) take(out []binding, b binding) []binding {
	if len(out) >= j.most {
		j.beyond.Frontends++
		return out
	}
	return append(out, b)
}

// mostFrontends is how many frontends the Service may have. Each is a virtual server of the kernel
// with as many destinations as its port has endpoints. Each of a load balancer also has one set
// entry for each source range of the Service. Those are bounded, too.
func (j *job) mostFrontends() int {
	var destinations [2]int // of all ports at one address, by family
	for i := range j.slices {
		if s := &j.slices[i]; s.Service == j.id && s.Family != 0 {
			destinations[sideIndex(s.Family)] += len(s.Endpoints) * len(s.Ports)
		}
	}
	most := max(destinations[0], destinations[1])
	rows := max(1, most/max(1, len(j.ports)), min(len(j.svc.SourceRanges), j.opts.MaxRanges))
	return min(j.opts.MaxFrontends, max(1, j.opts.MaxRows/rows))
}

// addresses is the most that one port can be bound to.
func (j *job) addresses() int {
	n := len(j.svc.ClusterIPs) + len(j.svc.ExternalIPs) + len(j.svc.Ingress)
	if hasNodePorts(j.ports) {
		n += len(j.opts.Host.NodePorts)
	}
	if j.svc.ExternalLocal {
		n += len(j.sides)
	}
	return n
}

// bindAddr appends one binding for each port of the Service, or a note.
func (j *job) bindAddr(out []binding, kind model.Kind, addr netip.Addr) []binding {
	if why := j.refuse(kind, addr); why != "" {
		j.notes.addf(model.AddressRefused, "%s %s is not served: %s", kind.Noun(), addr, why)
		if why == notAllowed {
			j.refused = append(j.refused, addr)
		}
		return out
	}
	if len(out) >= j.most {
		j.beyond.Frontends += len(j.ports)
		return out
	}
	family, bind := model.FamilyOf(addr), j.mayBind(kind, addr)
	_, onLink := j.opts.Host.Links[addr]
	capture := !bind && !j.opts.NoBinding && !onLink
	if s := j.side(family); kind == model.KindClusterIP && (!s.served() || addr.Less(s.clusterIP)) {
		s.clusterIP, s.bind = addr, bind
	}
	for i, p := range j.ports {
		key := model.FrontendKey{Addr: addr, Port: p.Port, Protocol: p.Protocol}
		out = j.take(out, binding{key: key, kind: kind, port: i, bind: bind, capture: capture})
		j.group(i, family).external = j.group(i, family).external || kind.External()
	}
	return out
}

// mayBind reports whether an address may be put on our link. An address that another machine needs
// is not bound, and only the Service's ports of it are served. A cluster IP was allocated by the
// API server, so only this machine's own use of it counts.
func (j *job) mayBind(kind model.Kind, addr netip.Addr) bool {
	if j.opts.NoBinding {
		return false
	}
	holder := j.holder(kind, addr)
	if holder == "" {
		return kind == model.KindClusterIP || j.opts.External != ExternalCapture
	}
	j.notes.addf(model.VIPConflictsWithNode, "%s is not bound on this node: it is %s (VIPConflictsWithNode)", addr, holder)
	j.unbound = append(j.unbound, addr)
	return false
}

// holder names whose an address is as far as a kind of address has to respect it.
func (j *job) holder(kind model.Kind, addr netip.Addr) string {
	h := &j.opts.Host
	switch {
	case kind == model.KindClusterIP:
		return h.Uses(addr)
	case j.opts.External == ExternalBind:
		return h.Reserved(addr)
	default:
		return h.Holder(addr)
	}
}

func (j *job) bindExternalIPs(out []binding) []binding {
	if j.opts.ExternalIPs.Off && len(j.svc.ExternalIPs) > 0 {
		j.notes.addf(model.ExternalIPsOff, "external IPs are not served: feature gate AllowServiceExternalIPs is off")
		return out
	}
	for _, addr := range j.svc.ExternalIPs {
		out = j.bindAddr(out, model.KindExternalIP, addr)
	}
	return out
}

func (j *job) bindIngress(out []binding) []binding {
	if len(j.svc.Ingress) > 0 && len(j.svc.SourceRanges) > 0 {
		j.limit()
	}
	for _, in := range j.svc.Ingress {
		if in.Proxy {
			j.remarks.addf(model.LeftToLoadBalancer, "load-balancer address %s is left to the load balancer (ipMode Proxy)", in.Addr)
			continue
		}
		out = j.bindAddr(out, model.KindLoadBalancer, in.Addr)
	}
	return out
}

func hasNodePorts(ports []model.ServicePort) bool {
	return slices.ContainsFunc(ports, func(p model.ServicePort) bool { return p.NodePort != 0 })
}

// bindNodePorts appends the node ports on the addresses of this node that were
// chosen for them. These are never ours to bind.
func (j *job) bindNodePorts(out []binding) []binding {
	if !hasNodePorts(j.ports) {
		return out
	}
	for _, f := range model.Families() {
		if !j.side(f).served() {
			continue
		}
		before := len(out)
		for _, addr := range j.opts.Host.NodePorts {
			if model.FamilyOf(addr) == f {
				out = j.bindNodeAddr(out, addr)
			}
		}
		if len(out) == before {
			j.notes.addf(model.NoNodePortAddress, "node ports are not served over %s: no %s address of this node is chosen for them", f, f)
		}
	}
	return out
}

func (j *job) bindNodeAddr(out []binding, addr netip.Addr) []binding {
	for i, p := range j.ports {
		if p.NodePort == 0 {
			continue
		}
		key := model.FrontendKey{Addr: addr, Port: p.NodePort, Protocol: p.Protocol}
		out = j.take(out, binding{key: key, kind: model.KindNodePort, port: i})
		j.group(i, model.FamilyOf(addr)).external = true
	}
	return out
}

// settle sorts the bindings by key and keeps the first of each by kind, then by
// the name of the port; it notes the others.
func (j *job) settle(all []binding) []binding {
	slices.SortFunc(all, func(a, b binding) int {
		return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.kind, b.kind),
			cmp.Compare(j.ports[a.port].Name, j.ports[b.port].Name), cmp.Compare(a.port, b.port))
	})
	kept := all[:0]
	for _, b := range all {
		if n := len(kept); n > 0 && kept[n-1].key == b.key {
			j.noteLoser(kept[n-1], b)
			continue
		}
		kept = append(kept, b)
	}
	return kept
}

// noteLoser says why one of two bindings to the same key is left out. An entry that only repeats
// another one is left out without a note.
func (j *job) noteLoser(winner, loser binding) {
	addr, number := loser.key.Addr, loser.key.Port
	name, other := j.ports[loser.port].Name, j.ports[winner.port].Name
	switch {
	case winner.kind == loser.kind && winner.port == loser.port:
	case loser.kind != model.KindNodePort:
		j.notes.addf(model.AddressTwice, "%s %s is its %s already: it is served once, as that%s",
			loser.kind.Noun(), addr, winner.kind.Noun(), j.unlimited(loser))
	case winner.kind != model.KindNodePort:
		j.notes.addf(model.NodePortTaken, "node port %d/%s of port %q is not served on %s: port %q of its %s is",
			number, loser.key.Protocol, name, addr, other, winner.kind.Noun())
	default:
		j.notes.addf(model.NodePortTwice, "node port %d/%s is listed twice: port %q is not served there", number, loser.key.Protocol, name)
	}
}

// unlimited warns of a filter that is lost with a load-balancer address.
func (j *job) unlimited(loser binding) string {
	if loser.kind == model.KindLoadBalancer && len(j.side(model.FamilyOf(loser.key.Addr)).ranges) > 0 {
		return ", without loadBalancerSourceRanges"
	}
	return ""
}
