package agent

import (
	"context"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// A planner owns the state that plans are compiled from and with: the host and the capabilities of the
// kernel. It hands plans to the mode, and keeps their outcomes. It belongs to the loop goroutine.
type planner struct {
	*shared
	host         hostState
	compiler     Compiler // for host.current
	capabilities capabilities
	outcomes     outcomes
	health       healthAnswers
	relayed      relayedPorts
	apiEndpoints apiEndpoints
	compiled     int // Services since the last pass
}

func newPlanner(s *shared) planner {
	return planner{
		shared:       s,
		host:         hostState{selectNodePorts: s.opts.NodePorts, rememberClaims: s.opts.Remember, known: model.Host{PodRanges: s.opts.PodRanges}},
		compiler:     s.opts.Compiler(model.Host{}),
		capabilities: newCapabilities(s.log, s.opts.Probes),
		outcomes:     newOutcomes(),
		health:       newHealthAnswers(s.opts.Health),
		relayed:      newRelayedPorts(s.opts.Relay),
		apiEndpoints: newAPIEndpoints(s.opts.Prober),
	}
}

// takeCompiled returns how many Services were compiled since its last call.
func (p *planner) takeCompiled() int {
	n := p.compiled
	p.compiled = 0
	return n
}

// compile hands the plans of some Services to the mode. It stops when the agent ends, because nothing is
// written then.
func (p *planner) compile(ctx context.Context, inputs []catalog.Input) {
	var conflicts []dataplane.Conflict
	for _, in := range inputs {
		if ctx.Err() != nil {
			return
		}
		plan := p.compiler.Compile(in.ID, in.Service, in.Slices)
		conflicts = append(conflicts, p.mode.Set(plan)...)
		before, now := p.outcomes.set(&plan)
		p.reporter.reportOutcome(plan.ID, before, now, &p.host.current)
		p.health.want(plan.ID, plan.Health)
		p.relayed.want(plan.ID, plan.Relays)
		p.apiEndpoints.set(&plan, p.serves)
	}
	p.reporter.reportConflicts(p.outcomes.settle(conflicts))
	p.compiled += len(inputs)
}

// serves reports whether a frontend answers at an address, port and protocol.
func (p *planner) serves(k model.FrontendKey) bool {
	_, there := p.mode.Frontends().Get(k)
	return there
}

// setFacts takes over the facts of a batch besides its Services: Nodes, and addresses that Services claim.
func (p *planner) setFacts(batch catalog.Batch) {
	if batch.NodeChanged {
		p.reporter.reportNode(p.host.known.Node, batch.Node)
		p.host.setNodes(batch)
	}
	p.host.remember(batch)
}

// probe probes the kernel for what some Services ask for.
func (p *planner) probe(ctx context.Context, inputs []catalog.Input) {
	p.capabilities.probe(ctx, inputs)
	p.applyRefused()
}

// applyRefused makes the kernel's refusals part of the known host, and schedules the next probe of them.
func (p *planner) applyRefused() {
	c := &p.capabilities
	if c.takeChange() {
		p.host.setRefused(c.refused, c.gueRefused)
	}
	if c.lacking() {
		p.schedule.setIfUnset(probeAgain, time.Now().Add(reprobeInterval))
	}
}

// merged joins two lists sorted by ID. Of a Service in both the first is the newer, because it was read
// later.
func merged(newer, older []catalog.Input) []catalog.Input {
	if len(newer) == 0 {
		return older
	}
	all := slices.Concat(newer, older)
	slices.SortStableFunc(all, func(a, b catalog.Input) int { return a.ID.Compare(b.ID) })
	return slices.CompactFunc(all, func(a, b catalog.Input) bool { return a.ID == b.ID })
}
