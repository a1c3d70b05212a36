package catalog

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Batch is everything that changed since the Take before it.
type Batch struct {
	// Services are the dirty ones, sorted by ID.
	Services []Input
	// Node is our own Node, or the zero Node without a name if no source has it.
	Node model.Node
	// Nodes has the addresses of all Nodes, ours included, with the name of the
	// Node, the first by name where several claim one. It is never changed after.
	Nodes map[netip.Addr]string
	// Weights has what Nodes say of the weight of their endpoints, by the name of the
	// Node; those that say nothing are not in it. It is never changed after.
	Weights map[string]model.NodeWeight
	// Endpoints are the addresses that a Service claims from outside the cluster and an
	// endpoint has, Guarded those that a Node had, with its name. Neither is changed after.
	Endpoints map[netip.Addr]struct{}
	Guarded   map[netip.Addr]string
	// Kept are the addresses that a Service claims from outside the cluster and a Node has or had,
	// with the Node's name. The next process gets them by Remember. It is never nil, nor changed
	// after.
	Kept map[netip.Addr]string
	// NodeChanged tells that any of these but Kept is not what the batch before had.
	NodeChanged bool
	// Triggers are when the changes of endpoints among it began.
	Triggers []Trigger
	// Held is when the first of the services is to be taken that wait for a slice; the
	// zero time where none does.
	Held time.Time
	// Synced: every awaited origin is Partial or Complete; kernel writes may begin.
	Synced bool
	// Complete: every awaited origin is Complete, so rows that no Service wants may be deleted.
	Complete bool
}

// Host has the facts of this machine and the others.
func (b *Batch) Host() model.Host {
	return model.Host{Node: b.Node, Nodes: b.Nodes, Weights: b.Weights, Endpoints: b.Endpoints, Guarded: b.Guarded}
}

// Input is the current state of one service.
type Input struct {
	ID model.ServiceID
	// Service is nil when it is gone.
	Service *model.Service
	// Slices are those of the service, sorted by ID; nil when it is gone.
	Slices []model.Slice
}

// Take returns the dirty Services and marks them clean. Nothing else empties the catalog's dirty set:
// the caller is responsible for the batch. Services that wait for their first slice stay dirty; the loop
// is not woken when their waiting time is over.
func (c *Catalog) Take() Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	held, until := c.inGrace()
	b := Batch{Services: c.takeServices(held), Held: until}
	c.takeNodes(&b)
	b.Synced, b.Complete = c.synced()
	b.Triggers, c.triggers = c.triggers, nil
	c.taken = true
	c.changes.taken()
	return b
}

func (c *Catalog) takeNodes(b *Batch) {
	b.Node, _ = c.node()
	var moved, reweighed bool
	b.Nodes, moved = c.addresses.take()
	b.Weights, reweighed = c.weights.take()
	_, complete := c.synced()
	var contested bool
	b.Endpoints, b.Guarded, contested = c.claimed.take(b.Nodes, complete)
	b.Kept = c.claimed.kept.hand()
	b.NodeChanged = moved || reweighed || contested || c.own.changed
	c.own.changed = false
}

// Matching returns the current services that satisfy the predicate, dirty or not, sorted by ID. It
// visits every service, so it is for changes that affect many of them. The predicate gets each
// service with its slices; it must keep neither and must not call the catalog.
func (c *Catalog) Matching(concerned func(*model.Service, []*model.Slice) bool) []Input {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Input
	for id, s := range c.services {
		if concerned(s, c.slices[id]) {
			out = append(out, c.input(id))
		}
	}
	sortInputs(out)
	return out
}

func sortInputs(list []Input) {
	slices.SortFunc(list, func(a, b Input) int { return a.ID.Compare(b.ID) })
}

// takeServices returns the dirty services but for the held ones, which become the
// dirty set.
func (c *Catalog) takeServices(held map[model.ServiceID]struct{}) []Input {
	if len(c.dirty) == len(held) {
		return nil
	}
	out := make([]Input, 0, len(c.dirty)-len(held))
	for id := range c.dirty {
		if _, stays := held[id]; !stays {
			out = append(out, c.input(id))
		}
	}
	sortInputs(out)
	// A new map, not clear: clearing costs what the map once held, which after
	// the first sync would tax every single change with the size of the cluster.
	c.dirty = held
	return out
}

func (c *Catalog) input(id model.ServiceID) Input {
	in := Input{ID: id, Service: c.services[id]}
	if in.Service == nil || len(c.slices[id]) == 0 {
		return in
	}
	in.Slices = make([]model.Slice, 0, len(c.slices[id]))
	for _, s := range c.slices[id] {
		in.Slices = append(in.Slices, *s)
	}
	return in
}

func compareSlice(a, b model.SliceID) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Origin, b.Origin))
}

// Synced reports whether the next Take will be Synced. Once it is, it stays.
func (c *Catalog) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	synced, _ := c.synced()
	return synced
}

func (c *Catalog) synced() (synced, complete bool) {
	synced, complete = true, true
	for _, s := range c.states {
		synced = synced && s >= source.Partial
		complete = complete && s == source.Complete
	}
	return synced, complete
}
