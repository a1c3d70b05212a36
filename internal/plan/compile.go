package plan

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// Options are what a plan depends on besides the Service and its slices.
type Options struct {
	// Node is the name of this node, as endpoints carry it. With an empty name
	// no endpoint counts as local.
	Node string
	// Zone is this node's label topology.kubernetes.io/zone; empty without.
	Zone string
	// Scheduler is given to every frontend; the zero Spec means the default.
	Scheduler scheduler.Spec
	// IPv4 and IPv6 tell which families this node serves.
	IPv4, IPv6 bool
	// Host says which addresses NodePorts answer on, which are somebody's already,
	// and which are this node's own.
	Host model.Host
	// ExternalIPs limits spec.externalIPs.
	ExternalIPs ExternalIPs
}

// ExternalIPs is what the operator lets spec.externalIPs ask for. The zero value
// allows everything, as the API does (CVE-2020-8554 says why one may not want it).
type ExternalIPs struct {
	// Off serves none (feature gate AllowServiceExternalIPs=false).
	Off bool
	// Allowed are the only networks they may be in; empty is all
	// (--external-ip-allowed-cidrs).
	Allowed []netip.Prefix
}

// serves tells whether frontends of the family are wanted on this node.
func (o Options) serves(f model.Family) bool {
	return f == model.IPv4 && o.IPv4 || f == model.IPv6 && o.IPv6
}

// Compiler turns Services into plans. It is an immutable value, safe for
// concurrent use; other Options need another Compiler.
type Compiler struct {
	opts Options
}

// New makes a Compiler for one node.
func New(o Options) *Compiler {
	if o.Scheduler.IsZero() {
		o.Scheduler = scheduler.MustParse(scheduler.Default)
	}
	return &Compiler{opts: o}
}

// Compile decides what is served for the Service named id; a nil svc means that
// it is gone, and its plan is empty. Slices of other Services are passed over.
// The arguments are neither changed nor kept, except for strings.
func (c *Compiler) Compile(id model.ServiceID, svc *model.Service, slices []model.Slice) model.ServicePlan {
	plan := model.ServicePlan{ID: id}
	if svc == nil {
		return plan
	}
	plan.Created = svc.Created
	if plan.Skipped = notOurs(svc); plan.Skipped != "" {
		return plan
	}
	j := job{opts: &c.opts, id: id, svc: svc, slices: slices}
	bindings := j.bind()
	if len(bindings) == 0 {
		plan.Skipped = unusable(svc, j.notes)
		return plan
	}
	j.scratch = make([]candidate, 0, j.endpoints())
	plan.Frontends = j.frontends(bindings)
	j.notePlan()
	plan.Notes = j.notes.sorted()
	return plan
}

// job is the working state of one Compile.
type job struct {
	opts   *Options
	id     model.ServiceID
	svc    *model.Service
	slices []model.Slice
	notes  notes
	// scratch is the storage of join's answer, used again for every frontend.
	scratch []candidate
}

func (j *job) frontends(bindings []binding) []model.Frontend {
	out := make([]model.Frontend, len(bindings))
	for i, b := range bindings {
		out[i] = j.frontend(b)
	}
	return out
}

func (j *job) frontend(b binding) model.Frontend {
	all := j.join(model.FamilyOf(b.key.Addr), b.port)
	f := model.Frontend{
		Key:       b.key,
		Kind:      model.KindClusterIP,
		Service:   j.id,
		PortName:  b.port.Name,
		Scheduler: j.opts.Scheduler,
		Affinity:  j.svc.Affinity,
		Backends:  backends(all, choose(j.opts, all, j.svc.InternalLocal)),
		Hairpin:   hairpin(all, j.opts.Node),
	}
	if len(f.Backends) == 0 {
		j.noteEmpty(b, all)
	}
	return f
}

// backends lists the candidates that the choice takes, in their order. Plans
// are kept for long, so the list is made to measure.
func backends(all []candidate, c choice) []model.Backend {
	n := count(all, c.takes)
	if n == 0 {
		return nil
	}
	out := make([]model.Backend, 0, n)
	for _, e := range all {
		if c.takes(e.ep) {
			out = append(out, model.Backend{Addr: e.addr, Weight: model.DefaultWeight})
		}
	}
	return out
}

// hairpin lists the candidates on this node whatever their condition, in their
// order: even one that takes no new connections still has old ones to itself
// (the members of KUBE-LOOP-BACK).
func hairpin(all []candidate, node string) []netip.AddrPort {
	n := count(all, func(e *model.Endpoint) bool { return isOn(e, node) })
	if n == 0 {
		return nil
	}
	out := make([]netip.AddrPort, 0, n)
	for _, e := range all {
		if isOn(e.ep, node) {
			out = append(out, e.addr)
		}
	}
	return out
}

// isOn tells whether an endpoint runs on the node. Two unknown names are not
// the same node.
func isOn(e *model.Endpoint, node string) bool {
	return node != "" && e.Node == node
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
