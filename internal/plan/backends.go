package plan

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// group is the frontends of one port in one family. They have the same endpoints, so their backends
// are chosen once, and their lists share their memory.
type group struct {
	// external: frontends of the group come from outside the cluster.
	external bool
	// detour is where the clients of this node go instead of those, if anywhere.
	detour netip.AddrPort

	decided bool
	// cluster and local are the lists of choose, each made only where a frontend
	// or a detour asks for it.
	cluster, local []model.Backend
	// localTerminates: local has endpoints that terminate.
	localTerminates bool
	// clusterKept and localKept are model.Frontend.Kept beside them.
	clusterKept, localKept []netip.AddrPort
	// somewhere: at least one endpoint could be used, on whatever node.
	somewhere bool
	hairpin   []netip.AddrPort
}

// list is the backends of a frontend by its policy.
func (g *group) list(local bool) []model.Backend {
	if local {
		return g.local
	}
	return g.cluster
}

// kept are the endpoints besides the backends whose connections continue.
func (g *group) kept(local bool) []netip.AddrPort {
	if local {
		return g.localKept
	}
	return g.clusterKept
}

// group finds the group of the port at a place in one family.
func (j *compilation) group(port int, f model.Family) *group {
	return &j.groups[len(j.families)*port+familyIndex(f)]
}

// decided returns the group after its endpoints were looked at.
func (j *compilation) decided(port int, f model.Family) *group {
	g := j.group(port, f)
	if g.decided {
		return g
	}
	g.decided = true
	all := j.join(f, j.ports[port])
	j.decide(g, j.ports[port].Protocol, all)
	j.noteEmpty(g, f, j.ports[port], len(all))
	if j.svc.HealthCheckNodePort != 0 {
		j.family(f).addReady(all, j.opts.Node)
	}
	return g
}

// decide makes the lists that the group's frontends will ask for.
func (j *compilation) decide(g *group, p model.Protocol, all []candidate) {
	if !j.svc.InternalLocal || g.external {
		c := choose(j.opts, all, false)
		g.cluster, g.clusterKept = j.backends(p, all, c), kept(p, all, c)
	}
	if j.svc.InternalLocal || g.external && j.svc.ExternalLocal {
		c := choose(j.opts, all, true)
		g.local, g.localKept = j.backends(p, all, c), kept(p, all, c)
		g.localTerminates = c.leaving && len(g.local) > 0
	}
	if slices.Equal(g.cluster, g.local) {
		g.local = g.cluster
	}
	g.somewhere = len(g.cluster) > 0 || len(g.local) > 0 || count(all, usable) > 0
	g.hairpin = hairpin(all, j.opts.Node)
}

// backends lists the candidates that the choice takes, in their order. Plans
// are kept for long, so the list is made to measure.
func (j *compilation) backends(p model.Protocol, all []candidate, c choice) []model.Backend {
	n := count(all, c.takes)
	if n == 0 {
		return nil
	}
	out := make([]model.Backend, 0, n)
	for _, e := range all {
		if c.takes(e.ep) {
			out = append(out, model.Backend{Addr: e.addr, Weight: j.weight(e)})
		}
	}
	j.leaveOutFailing(p, out)
	return out
}

// kept returns the candidates that the choice excludes, but that serve or were not told to
// terminate. They keep their connections (internal/DECISIONS.md, Draining). UDP has no
// connections to keep.
func kept(p model.Protocol, all []candidate, c choice) []netip.AddrPort {
	if p == model.UDP {
		return nil
	}
	return addresses(all, func(e *model.Endpoint) bool { return !c.takes(e) && (usable(e) || !e.Terminating) })
}

// hairpin lists the candidates on this node whatever their condition, in their
// order: even one that takes no new connections still has old ones to itself
// (the members of KUBE-LOOP-BACK).
func hairpin(all []candidate, node string) []netip.AddrPort {
	return addresses(all, func(e *model.Endpoint) bool { return isOn(e, node) })
}

// addresses lists those of the candidates that satisfy the predicate, in their order
// and made to measure.
func addresses(all []candidate, pred func(*model.Endpoint) bool) []netip.AddrPort {
	n := count(all, pred)
	if n == 0 {
		return nil
	}
	out := make([]netip.AddrPort, 0, n)
	for _, e := range all {
		if pred(e.ep) {
			out = append(out, e.addr)
		}
	}
	return out
}

// isOn reports whether an endpoint runs on the node. Two unknown names are not the same node.
func isOn(e *model.Endpoint, node string) bool {
	return node != "" && e.Node == node
}

// usable reports whether choose could take the endpoint if it were on this node.
func usable(e *model.Endpoint) bool {
	return e.Ready || e.Serving && e.Terminating
}

// count tells how many candidates satisfy the predicate.
func count(all []candidate, pred func(*model.Endpoint) bool) int {
	n := 0
	for _, e := range all {
		if pred(e.ep) {
			n++
		}
	}
	return n
}
