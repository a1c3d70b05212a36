package plan

import (
	"net/netip"
	"slices"
	"time"

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
	// Drain is Frontend.Drain of Services that say nothing of it.
	Drain time.Duration
	// IPv4 and IPv6 tell which families this node serves.
	IPv4, IPv6 bool
	// Host has the addresses that serve NodePorts, the addresses of other machines, and those of
	// this node.
	Host model.Host
	// ExternalIPs limits spec.externalIPs.
	ExternalIPs ExternalIPs
	// NoBinding: the mode puts no address on a link, so none has to be kept off one.
	NoBinding bool
	// MaxFrontends bounds the frontends of one Service, and MaxRanges its source ranges of
	// each family; 0 is the default.
	MaxFrontends, MaxRanges int
	// MaxRows bounds the destinations of all its frontends, and the source ranges of all;
	// 0 is the default.
	MaxRows int
	// External is how external and load-balancer addresses become local.
	External ExternalBinding
	// Routed are the ranges that the mode may make local as a whole (--vip-binding).
	Routed []netip.Prefix
	// Relayed are the loopback addresses on which a process serves NodePorts.
	Relayed []netip.Addr
	// NoPolicy: the mode picks backends at random, whatever annotations ask for.
	NoPolicy bool
}

// ExternalIPs are the values of spec.externalIPs that the operator allows. The zero value allows
// everything, as the API does (a risk: CVE-2020-8554).
type ExternalIPs struct {
	// Off serves none (feature gate AllowServiceExternalIPs=false).
	Off bool
	// Allowed are the only networks they may be in; empty is all
	// (--external-ip-allowed-cidrs).
	Allowed []netip.Prefix
}

// Defaults of Options. A Service in use has some tens of frontends, its ranges are those of a
// few networks, and some thousand endpoints are many; a hostile one has millions.
const (
	DefaultMaxFrontends = 4096
	DefaultMaxRanges    = 4096
	DefaultMaxRows      = 1 << 18
)

// ExternalBinding is how external and load-balancer addresses become local to this machine
// (--external-binding). Cluster IPs are bound in any case.
type ExternalBinding string

// The values of ExternalBinding.
const (
	// ExternalAuto binds what no other machine may have, and captures the rest by port.
	ExternalAuto ExternalBinding = "auto"
	// ExternalBind binds all but what this machine uses itself, the addresses of Nodes and
	// those of the API server.
	ExternalBind ExternalBinding = "bind"
	// ExternalCapture binds none: each is captured by port.
	ExternalCapture ExternalBinding = "capture"
)

// serves reports whether frontends of the family are served on this node.
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
	if o.MaxFrontends == 0 {
		o.MaxFrontends = DefaultMaxFrontends
	}
	if o.MaxRanges == 0 {
		o.MaxRanges = DefaultMaxRanges
	}
	if o.MaxRows == 0 {
		o.MaxRows = DefaultMaxRows
	}
	return &Compiler{opts: o}
}

// Compile decides what is served for the Service named id; a nil svc means that it is gone, and its
// plan is empty. Slices of other Services are ignored. The arguments are neither changed nor kept,
// except for strings.
func (c *Compiler) Compile(id model.ServiceID, svc *model.Service, slices []model.Slice) model.ServicePlan {
	plan := model.ServicePlan{ID: id}
	if svc == nil {
		return plan
	}
	plan.Created = svc.Created
	if plan.Skipped = notOurs(svc); plan.Skipped != "" {
		plan.Intended = true
		return plan
	}
	j := compilation{opts: &c.opts, id: id, svc: svc, slices: slices}
	bindings := j.bind()
	if len(bindings) == 0 {
		plan.BadAnnotations = svc.BadAnnotations
		plan.Skipped = unusable(svc, j.notes)
		return plan
	}
	j.scratch = make([]candidate, 0, j.endpoints())
	plan.Frontends = j.frontends(bindings)
	plan.Relays = j.relays(len(bindings))
	plan.Health = j.health()
	plan.Beyond = j.beyond
	if n := j.beyond.Frontends; n > 0 {
		limit := "a Service has %d at most (--service-frontends)"
		if j.most < j.opts.MaxFrontends {
			limit = "with its endpoints and source ranges it may have %d at most (--service-rows)"
		}
		j.notes.addf(model.TooManyFrontends, "%d of its frontends are not served: "+limit, n, j.most)
	}
	if n := j.beyond.SourceRanges; n > 0 {
		j.notes.addf(model.TooManySourceRanges, "clients in %d of its source ranges are not admitted: a Service has %d of a family at most (--service-source-ranges)", n, j.opts.MaxRanges)
	}
	plan.Unbound, plan.Refused = sortedAddrs(j.unbound), sortedAddrs(j.refused)
	plan.BadAnnotations = j.badAnnotations(plan.Frontends)
	j.notes.add(model.BadAnnotation, plan.BadAnnotations...)
	j.notePlan()
	plan.Notes, plan.Remarks = j.notes.sorted(), j.remarks.sorted()
	return plan
}

func (j *compilation) frontends(bindings []binding) []model.Frontend {
	out := make([]model.Frontend, len(bindings))
	for i := range bindings {
		out[i] = j.frontend(&bindings[i])
	}
	return out
}

func (j *compilation) frontend(b *binding) model.Frontend {
	family, local := model.FamilyOf(b.key.Addr), j.local(b.kind)
	g := j.decided(b.port, family)
	f := model.Frontend{
		Key:       b.key,
		Kind:      b.kind,
		Service:   j.id,
		PortName:  j.ports[b.port].Name,
		Scheduler: j.scheduler(),
		Affinity:  j.svc.Affinity,
		Bind:      b.bind,
		Capture:   b.capture,
		Local:     local,
		Backends:  g.list(local),
		Kept:      g.kept(local),
	}
	j.shape(&f)
	f.Terminating = local && g.localTerminates
	f.NoLocal = local && len(f.Backends) == 0 && g.somewhere
	if b.kind.External() && (local || f.Forward != model.ForwardNAT) {
		f.Detour = g.detour
	}
	switch b.kind {
	case model.KindClusterIP:
		f.Hairpin = g.hairpin
	case model.KindLoadBalancer:
		f.SourceRanges, f.OwnNode = j.family(family).ranges, j.family(family).ownNode
	}
	return f
}

// local reports whether the policy that applies to a kind of frontend is Local. A Detour frontend
// exists to be governed by none.
func (j *compilation) local(k model.Kind) bool {
	return k == model.KindClusterIP && j.svc.InternalLocal || k.External() && j.svc.ExternalLocal
}

// sortedAddrs orders addresses and drops repetitions, in place.
func sortedAddrs(all []netip.Addr) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
