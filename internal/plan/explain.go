package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Explain returns for every endpoint of a Service which policy uses it, and why another policy does
// not. It covers each port in each family in which the Service is served, and uses the same rules
// and decisions as Compile. A Service that is not served at all has none; its plan has the reason.
func (c *Compiler) Explain(id model.ServiceID, svc *model.Service, slices []model.Slice) []model.PortStory {
	if svc == nil || notOurs(svc) != "" {
		return nil
	}
	j := compilation{opts: &c.opts, id: id, svc: svc, slices: slices}
	if len(j.bind()) == 0 {
		return nil
	}
	var out []model.PortStory
	for i := range j.ports {
		for _, f := range model.Families() {
			if j.family(f).served() {
				out = append(out, j.story(i, f))
			}
		}
	}
	return out
}

// story reports one port in one family.
func (j *compilation) story(port int, f model.Family) model.PortStory {
	p := j.ports[port]
	t := &teller{compilation: j, port: p, all: slices.Clone(j.join(f, p))}
	g := j.group(port, f)
	if !j.svc.InternalLocal || g.external {
		t.cluster = new(choose(j.opts, t.all, false))
	}
	if j.svc.InternalLocal || g.external && j.svc.ExternalLocal {
		t.local = new(choose(j.opts, t.all, true))
	}
	out := model.PortStory{Family: f.String(), Name: p.Name, Port: p.Port, Protocol: p.Protocol.String(), Endpoints: []model.EndpointStory{}}
	for i := range j.slices {
		if s := &j.slices[i]; s.Service == j.id && s.Family == f {
			out.Endpoints = t.appendSlice(out.Endpoints, s)
		}
	}
	slices.SortStableFunc(out.Endpoints, func(a, b model.EndpointStory) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Slice, b.Slice))
	})
	return out
}

// rank puts the entry that is used before those that repeat its address.
func rank(e model.EndpointStory) int {
	for _, v := range []*model.Verdict{e.Cluster, e.Local} {
		if v != nil && v.Use != model.UseNone {
			return 0
		}
	}
	return 1
}

// teller goes through the endpoints behind one port in one family.
type teller struct {
	*compilation
	port model.ServicePort
	// all are the candidates, as join has them.
	all []candidate
	// cluster and local are how the policies choose among them; nil is no such policy.
	cluster, local *choice
}

// appendSlice reports the endpoints of one slice, once for each of its target ports.
func (t *teller) appendSlice(out []model.EndpointStory, s *model.Slice) []model.EndpointStory {
	joined := false
	for _, p := range s.Ports {
		if joins(p, t.port) {
			joined = true
			out = t.appendEndpoints(out, s, p.Port, t.unjoined)
		}
	}
	if joined {
		return out
	}
	why := fmt.Sprintf("its EndpointSlice has no port named %q over %s", t.port.Name, t.port.Protocol)
	return t.appendEndpoints(out, s, 0, func(*model.Slice, *model.Endpoint, netip.AddrPort) string { return why })
}

// appendEndpoints reports the endpoints of a slice; refused is the reason why one is no candidate.
func (t *teller) appendEndpoints(out []model.EndpointStory, s *model.Slice, port uint16, refused func(*model.Slice, *model.Endpoint, netip.AddrPort) string) []model.EndpointStory {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		story := model.EndpointStory{
			Address: netip.AddrPortFrom(e.Addr, port), Slice: s.ID.String(), Node: e.Node,
			Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating,
		}
		why := refused(s, e, story.Address)
		story.Cluster, story.Local = t.judge(t.cluster, s, e, story.Address, why), t.judge(t.local, s, e, story.Address, why)
		out = append(out, story)
	}
	return out
}

// unjoined reports why an endpoint of a slice with the right port is no candidate; empty if it is.
func (t *teller) unjoined(s *model.Slice, e *model.Endpoint, addr netip.AddrPort) string {
	if why := unfit(e.Addr, s.Family); why != "" {
		return why
	}
	i := slices.IndexFunc(t.all, func(c candidate) bool { return c.addr == addr })
	if t.all[i].ep != e {
		return fmt.Sprintf("its address is listed twice, and the entry of EndpointSlice %s counts", t.all[i].slice.ID)
	}
	return ""
}

// judge returns the verdict of one policy on an endpoint; nil without that policy.
func (t *teller) judge(c *choice, s *model.Slice, e *model.Endpoint, addr netip.AddrPort, refused string) *model.Verdict {
	switch {
	case c == nil:
		return nil
	case refused != "":
		return &model.Verdict{Use: model.UseNone, Why: refused}
	case c.takes(e):
		v := t.taken(c, s, e)
		t.probed(c, addr, v)
		return v
	}
	v := &model.Verdict{Use: model.UseNone, Why: c.passedOver(e)}
	if t.port.Protocol != model.UDP && (usable(e) || !e.Terminating) {
		v.Use = model.UseKept
	}
	return v
}

// taken is the verdict on a backend.
func (t *teller) taken(c *choice, s *model.Slice, e *model.Endpoint) *model.Verdict {
	v := &model.Verdict{Use: model.UseBackend, Weight: t.weight(candidate{ep: e, slice: s})}
	switch {
	case v.Weight == 0:
		v.Use, v.Why = model.UseDrained, "weight 0, by annotation of its "+t.weigher(s, e)
	case c.leaving:
		v.Why = "terminating, and no ready endpoint can be used"
	}
	return v
}

// weigher names the object that sets the weight of an endpoint, in the order of weight.
func (t *teller) weigher(s *model.Slice, e *model.Endpoint) string {
	if w, said := t.opts.Host.Weights[e.Node]; said && w.Bad == "" {
		return fmt.Sprintf("Node %q", e.Node)
	}
	if s.Weight != nil {
		return "EndpointSlice " + s.ID.String()
	}
	return "Service"
}

// passedOver reports why a choice does not take an endpoint.
func (c choice) passedOver(e *model.Endpoint) string {
	switch {
	case !usable(e) && e.Terminating:
		return "terminating and no longer serving"
	case !usable(e):
		return "not ready"
	case !c.reaches(e):
		return c.outOfReach(e)
	}
	return "terminating, while others are ready"
}

// outOfReach reports why an endpoint is not for this node's clients.
func (c choice) outOfReach(e *model.Endpoint) string {
	switch c.scope {
	case onNode:
		if e.Node == "" {
			return "policy Local: it names no node"
		}
		return fmt.Sprintf("policy Local: it is on node %q", e.Node)
	case hintedNode:
		return fmt.Sprintf("node hints: it is for %s", quoted(e.NodeHints()))
	}
	return fmt.Sprintf("zone hints: it is for %s, and this node is in %q", quoted(e.ZoneHints()), c.opts.Zone)
}

// quoted lists names.
func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(out, ", ")
}

// joins reports whether a slice's port is the target of the Service's, see targetsOf.
func joins(p model.SlicePort, port model.ServicePort) bool {
	return p.Name == port.Name && p.Protocol == port.Protocol && p.Port != 0
}
