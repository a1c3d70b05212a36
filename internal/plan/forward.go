package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file follows kube-ipvs.io/forward. A packet that is forwarded as it is keeps its
// destination, address and port, and the backend answers the client itself. Only clients outside
// use these frontends. For a client on this node, this node would be the router of the answers in
// any case. So such a client is redirected to the cluster IP (bindDetours), where pods can also
// connect to themselves.

// forwards reports whether frontends of a kind are forwarded as the annotation asks. Node ports are
// on addresses of the node, of which the backend has none, and no client outside uses a cluster IP.
func forwards(k model.Kind) bool { return k == model.KindExternalIP || k == model.KindLoadBalancer }

// forward is how packets get to the backends of a frontend: as asked, or by nat, as a
// whole, where that cannot be. Why is noted.
func (j *compilation) forward(f *model.Frontend) model.Forward {
	way := j.asked().Forward
	if way == model.ForwardNAT || !forwards(f.Kind) {
		return model.ForwardNAT
	}
	if why := j.rewrites(f); why != "" {
		j.rewritten.addf(model.BadAnnotation, "%s: %s is forwarded by nat, not %s: %s", annotation("forward"), f.Key, way, why)
		return model.ForwardNAT
	}
	return way
}

// rewrites reports why packets of a frontend have to be rewritten, empty if they need not.
// Its backends are of its own family already (join).
func (j *compilation) rewrites(f *model.Frontend) string {
	if p := j.asked(); p.Forward == model.ForwardTunnel && p.GUE != 0 && j.opts.Host.NoGUE != "" {
		return fmt.Sprintf("%s asks for GUE, which this node cannot use (%s)", annotation("tunnel"), j.opts.Host.NoGUE)
	}
	if !f.Bind {
		holder := cmp.Or(j.holder(f.Kind, f.Key.Addr), "not bound on this node")
		return fmt.Sprintf("%s is %s: answers from it would be dropped", f.Key.Addr, holder)
	}
	if i := slices.IndexFunc(j.opts.Routed, func(p netip.Prefix) bool { return p.Contains(f.Key.Addr) }); i >= 0 {
		return fmt.Sprintf("%s is in %s, a range that --vip-binding makes local: answers from it would be dropped", f.Key.Addr, j.opts.Routed[i])
	}
	for _, b := range f.Backends {
		if holder := j.opts.Host.Reserved(b.Addr.Addr()); holder != "" {
			return fmt.Sprintf("endpoint %s is %s, and a pod in the host's network namespace cannot have %s itself", b.Addr, holder, f.Key.Addr)
		}
		if b.Addr.Port() != f.Key.Port {
			return fmt.Sprintf("endpoint %s is not on port %d, and the port stays in the packet", b.Addr, f.Key.Port)
		}
	}
	return ""
}

// otherHostEndpoints reports whether a Service that asks for another method than nat gained or lost
// an endpoint in a host's network namespace.
func otherHostEndpoints(now, old *model.Host, svc *model.Service, behind []*model.Slice) bool {
	if svc.Policy == nil || svc.Policy.Forward == model.ForwardNAT {
		return false
	}
	return slices.ContainsFunc(behind, func(s *model.Slice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e model.Endpoint) bool { return now.Reserved(e.Addr) != old.Reserved(e.Addr) })
	})
}
