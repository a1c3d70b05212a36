package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// binding is one address and port on which a Service answers, before its backends are known.
type binding struct {
	key  model.FrontendKey
	kind model.Kind
	// port is a place in compilation.ports.
	port int
	// bind: the address is to be put on our link. capture: packets to the port are taken to
	// the virtual server without that.
	bind, capture bool
}

// binder collects the bindings of a Service.
type binder struct {
	*compilation
	out []binding
}

// bind lists every address and port on which the Service answers, sorted by key and unique, and
// notes which of them cannot be served. A Service without a cluster IP has no frontends.
func (j *compilation) bind() []binding {
	j.ports = j.usablePorts()
	j.groups = make([]group, len(j.families)*len(j.ports))
	j.most = j.mostFrontends()
	b := &binder{j, make([]binding, 0, min(len(j.ports)*j.addresses(), j.most))}
	for _, addr := range j.svc.ClusterIPs {
		b.bindAddr(model.KindClusterIP, addr)
	}
	if len(b.out) == 0 {
		return nil
	}
	// Frontends beyond the maximum are not served, so the stronger kinds come first.
	b.bindIngress()
	b.bindNodePorts()
	b.bindExternalIPs()
	b.bindDetours()
	b.bindRelays()
	return b.settle()
}

// take adds a binding, unless the Service has as many as it may have.
func (b *binder) take(one binding) {
	if len(b.out) >= b.most {
		b.beyond.Frontends++
		return
	}
	b.out = append(b.out, one)
}

// mostFrontends is how many frontends the Service may have. Each is a virtual server of the kernel
// with as many destinations as its port has endpoints. Each of a load balancer also has one set
// entry for each source range of the Service. Those are bounded, too.
func (j *compilation) mostFrontends() int {
	var destinations [2]int // how many there are at one address, for all ports together, by family
	for i := range j.slices {
		if s := &j.slices[i]; s.Service == j.id && s.Family != 0 {
			destinations[familyIndex(s.Family)] += len(s.Endpoints) * len(s.Ports)
		}
	}
	most := max(destinations[0], destinations[1])
	rows := max(1, most/max(1, len(j.ports)), min(len(j.svc.SourceRanges), j.opts.MaxRanges))
	return min(j.opts.MaxFrontends, max(1, j.opts.MaxRows/rows))
}

// addresses is the most that one port can be bound to.
func (j *compilation) addresses() int {
	n := len(j.svc.ClusterIPs) + len(j.svc.ExternalIPs) + len(j.svc.Ingress)
	if hasNodePorts(j.ports) {
		n += len(j.opts.Host.NodePorts)
	}
	if j.svc.ExternalLocal {
		n += len(j.families)
	}
	return n
}

// bindAddr adds one binding for each port of the Service, or a note.
func (b *binder) bindAddr(kind model.Kind, addr netip.Addr) {
	if why := b.refuse(kind, addr); why != "" {
		b.notes.addf(model.AddressRefused, "%s %s is not served: %s", kind.Noun(), addr, why)
		if why == notAllowed {
			b.refused = append(b.refused, addr)
		}
		return
	}
	if len(b.out) >= b.most {
		b.beyond.Frontends += len(b.ports)
		return
	}
	family, bind := model.FamilyOf(addr), b.mayBind(kind, addr)
	_, onLink := b.opts.Host.Links[addr]
	capture := !bind && !b.opts.NoBinding && !onLink
	if s := b.family(family); kind == model.KindClusterIP && (!s.served() || addr.Less(s.clusterIP)) {
		s.clusterIP, s.bind = addr, bind
	}
	for i, p := range b.ports {
		key := model.FrontendKey{Addr: addr, Port: p.Port, Protocol: p.Protocol}
		b.take(binding{key: key, kind: kind, port: i, bind: bind, capture: capture})
		b.group(i, family).external = b.group(i, family).external || kind.External()
	}
}

// mayBind reports whether an address may be put on our link. An address that another machine needs
// is not bound, and only the Service's ports of it are served. A cluster IP was allocated by the
// API server, so only this machine's own use of it counts.
func (b *binder) mayBind(kind model.Kind, addr netip.Addr) bool {
	if b.opts.NoBinding {
		return false
	}
	holder := b.holder(kind, addr)
	if holder == "" {
		return kind == model.KindClusterIP || b.opts.External != ExternalCapture
	}
	b.notes.addf(model.VIPConflictsWithNode, "%s is not bound on this node: it is %s (VIPConflictsWithNode)", addr, holder)
	b.unbound = append(b.unbound, addr)
	return false
}

// holder names whose an address is as far as a kind of address has to respect it.
func (j *compilation) holder(kind model.Kind, addr netip.Addr) string {
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

func (b *binder) bindExternalIPs() {
	if b.opts.ExternalIPs.Off && len(b.svc.ExternalIPs) > 0 {
		b.notes.addf(model.ExternalIPsOff, "external IPs are not served: feature gate AllowServiceExternalIPs is off")
		return
	}
	for _, addr := range b.svc.ExternalIPs {
		b.bindAddr(model.KindExternalIP, addr)
	}
}

func (b *binder) bindIngress() {
	if len(b.svc.Ingress) > 0 && len(b.svc.SourceRanges) > 0 {
		b.limit()
	}
	for _, in := range b.svc.Ingress {
		if in.Proxy {
			b.remarks.addf(model.LeftToLoadBalancer, "load-balancer address %s is left to the load balancer (ipMode Proxy)", in.Addr)
			continue
		}
		b.bindAddr(model.KindLoadBalancer, in.Addr)
	}
}

func hasNodePorts(ports []model.ServicePort) bool {
	return slices.ContainsFunc(ports, func(p model.ServicePort) bool { return p.NodePort != 0 })
}

// bindNodePorts adds the node ports on the addresses of this node that were
// chosen for them. These are never ours to bind.
func (b *binder) bindNodePorts() {
	if !hasNodePorts(b.ports) {
		return
	}
	for _, f := range model.Families() {
		if !b.family(f).served() {
			continue
		}
		before := len(b.out)
		for _, addr := range b.opts.Host.NodePorts {
			if model.FamilyOf(addr) == f {
				b.bindNodeAddr(addr)
			}
		}
		relayed := slices.ContainsFunc(b.opts.Relayed, func(a netip.Addr) bool { return model.FamilyOf(a) == f })
		if len(b.out) == before && !relayed {
			b.notes.addf(model.NoNodePortAddress, "node ports are not served over %s: no %s address of this node is chosen for them", f, f)
		}
	}
}

func (b *binder) bindNodeAddr(addr netip.Addr) {
	for i, p := range b.ports {
		if p.NodePort == 0 {
			continue
		}
		key := model.FrontendKey{Addr: addr, Port: p.NodePort, Protocol: p.Protocol}
		b.take(binding{key: key, kind: model.KindNodePort, port: i})
		b.group(i, model.FamilyOf(addr)).external = true
	}
}

// settle sorts the bindings by key and keeps the first of each by kind, then by
// the name of the port; it notes the others.
func (b *binder) settle() []binding {
	slices.SortFunc(b.out, func(x, y binding) int {
		return cmp.Or(x.key.Compare(y.key), cmp.Compare(x.kind, y.kind),
			cmp.Compare(b.ports[x.port].Name, b.ports[y.port].Name), cmp.Compare(x.port, y.port))
	})
	kept := b.out[:0]
	for _, one := range b.out {
		if n := len(kept); n > 0 && kept[n-1].key == one.key {
			b.noteLoser(kept[n-1], one)
			continue
		}
		kept = append(kept, one)
	}
	return kept
}

// noteLoser notes why one of two bindings to the same key is left out. An entry that only repeats
// another one is left out without a note.
func (b *binder) noteLoser(winner, loser binding) {
	addr, number := loser.key.Addr, loser.key.Port
	name, other := b.ports[loser.port].Name, b.ports[winner.port].Name
	switch {
	case winner.kind == loser.kind && winner.port == loser.port:
	case loser.kind != model.KindNodePort:
		b.notes.addf(model.AddressTwice, "%s %s is its %s already: it is served once, as that%s",
			loser.kind.Noun(), addr, winner.kind.Noun(), b.unlimited(loser))
	case winner.kind != model.KindNodePort:
		b.notes.addf(model.NodePortTaken, "node port %d/%s of port %q is not served on %s: port %q of its %s is",
			number, loser.key.Protocol, name, addr, other, winner.kind.Noun())
	default:
		b.notes.addf(model.NodePortTwice, "node port %d/%s is listed twice: port %q is not served there", number, loser.key.Protocol, name)
	}
}

// unlimited warns of a filter that is lost with a load-balancer address.
func (b *binder) unlimited(loser binding) string {
	if loser.kind == model.KindLoadBalancer && len(b.family(model.FamilyOf(loser.key.Addr)).ranges) > 0 {
		return ", without loadBalancerSourceRanges"
	}
	return ""
}
