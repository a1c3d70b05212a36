package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// HostReader reads the addresses of this machine; *link.Handle is one.
type HostReader interface {
	// Local returns the addresses of all links but ours, with the link of each.
	Local(ctx context.Context) (map[netip.Addr]string, error)
	// Gateways returns the next hops of the default routes, sorted.
	Gateways(ctx context.Context) ([]netip.Addr, error)
}

// A machine is what one reading of this machine found.
type machine struct {
	links      map[netip.Addr]string
	gateways   []netip.Addr
	apiServers []netip.Addr
}

// readMachine reads this machine. apiServers may be nil.
func readMachine(ctx context.Context, r HostReader, apiServers func() []netip.Addr) (m machine, err error) {
	if m.links, err = r.Local(ctx); err != nil {
		return machine{}, fmt.Errorf("read the addresses of this machine: %w", err)
	}
	if m.gateways, err = r.Gateways(ctx); err != nil {
		return machine{}, fmt.Errorf("read the gateways of this machine: %w", err)
	}
	if apiServers != nil {
		m.apiServers = apiServers()
	}
	return m, nil
}

// A hostState owns the model.Host: the one that Services are compiled for, and what is known since then.
// It does no I/O, and belongs to the loop goroutine.
type hostState struct {
	selectNodePorts func(model.Host) []netip.Addr // nil selects none
	rememberClaims  func(map[netip.Addr]string)   // Options.Remember

	current model.Host // the host for which Services are compiled
	known   model.Host // all known facts, before NodePorts are selected
	changed bool       // known may differ from current
	wasRead bool       // the machine was read at least once
	readAt  time.Time  // when a reading was tried last
	// remembered is the last value for rememberClaims.
	remembered map[netip.Addr]string
}

// setMachine takes over a reading of this machine.
func (h *hostState) setMachine(m machine) {
	k := &h.known
	if !h.wasRead || !maps.Equal(m.links, k.Links) || !slices.Equal(m.gateways, k.Gateways) || !slices.Equal(m.apiServers, k.APIServers) {
		k.Links, k.Gateways, k.APIServers, h.changed = m.links, m.gateways, m.apiServers, true
	}
	h.wasRead = true
}

// setNodes takes over what the catalog knows of Nodes and of contested addresses.
func (h *hostState) setNodes(b catalog.Batch) {
	h.known.Node, h.known.Nodes, h.known.Weights = b.Node, b.Nodes, b.Weights
	h.known.Endpoints, h.known.Guarded = b.Endpoints, b.Guarded
	h.changed = true
}

// remember keeps, for the next process, the addresses of Nodes that Services claim. The first value
// replaces that of the process before.
func (h *hostState) remember(b catalog.Batch) {
	if h.rememberClaims == nil || !b.Synced || h.remembered != nil && maps.Equal(h.remembered, b.Kept) {
		return
	}
	h.remembered = b.Kept
	h.rememberClaims(b.Kept)
}

// setRefused takes over what the kernel refused.
func (h *hostState) setRefused(schedulers map[scheduler.Spec]string, gue string) {
	h.known.Refused, h.known.NoGUE, h.changed = schedulers, gue, true
}

// setFailing takes over which endpoints of API servers fail their probes.
func (h *hostState) setFailing(failing map[netip.AddrPort]string) {
	h.known.Failing, h.changed = failing, true
}

// latest returns the host as it is known now, with the addresses of NodePorts.
func (h *hostState) latest() model.Host {
	now := h.known
	if h.selectNodePorts != nil {
		now.NodePorts = h.selectNodePorts(now)
	}
	return now
}

// change returns the host to compile for now. It reports false if that equals the current one. It
// compares only after a change, because comparing costs time in proportion to the number of Nodes.
func (h *hostState) change() (now model.Host, changed bool) {
	if !h.changed {
		return h.current, false
	}
	h.changed = false
	now = h.latest()
	return now, !now.Equal(h.current)
}
