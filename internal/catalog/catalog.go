package catalog

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Catalog is the Sink of all sources and the only input of the agent. It is safe for
// concurrent use.
type Catalog struct {
	log  *zap.Logger
	self string
	wake chan time.Time

	mu       sync.Mutex
	services map[model.ServiceID]*model.Service
	// slices are kept under the Service they name, known or not, so that the order of
	// arrival does not matter, sorted by ID. Slices that name none are not kept.
	slices map[model.ServiceID][]*model.Slice
	// named finds a slice by its own name.
	named map[model.SliceID]*model.Slice
	// dirty Services have changed since the last Take.
	dirty map[model.ServiceID]struct{}
	// endpointGrace is how long a new Service waits for its first slice, and since is the time of
	// arrival of the Services that wait; all of them are dirty.
	endpointGrace time.Duration
	since         map[model.ServiceID]time.Time
	taken         bool // Take was called
	// states has exactly the origins that have to deliver.
	states map[model.Origin]source.State
	own    ownNode
	// book has the addresses of all Nodes.
	addresses nodeAddresses
	// claimed has the addresses that Services claim, with their other owners.
	claimed claimBook
	// weights has the weights that Nodes ask for their endpoints.
	weights nodeWeights
	// startTime is when the catalog was made, triggers are those of the changes since the last
	// Take, and changes counts the changes.
	startTime time.Time
	triggers  []Trigger
	changes   Changes
}

var _ source.Sink = (*Catalog)(nil)

// New returns an empty catalog for the node named self. It is in sync once every one of
// origins is.
func New(log *zap.Logger, self string, origins ...model.Origin) *Catalog {
	c := &Catalog{
		log:       log.Named("catalog"),
		self:      self,
		wake:      make(chan time.Time, 1),
		services:  map[model.ServiceID]*model.Service{},
		slices:    map[model.ServiceID][]*model.Slice{},
		named:     map[model.SliceID]*model.Slice{},
		dirty:     map[model.ServiceID]struct{}{},
		since:     map[model.ServiceID]time.Time{},
		states:    map[model.Origin]source.State{},
		own:       ownNode{nodes: map[model.Origin]model.Node{}, gone: map[model.Origin]bool{}},
		addresses: newNodeAddresses(),
		claimed:   newClaimBook(),
		weights:   newNodeWeights(),
		startTime: time.Now(),
	}
	for _, o := range origins {
		c.states[o] = source.Starting
	}
	return c
}

// Wake returns a channel with room for one value. It has the time of the first change since
// the last Take; any number of changes is one value.
func (c *Catalog) Wake() <-chan time.Time { return c.wake }

// notify fills the channel of Wake. A full channel will wake the reader anyway.
func (c *Catalog) notify() {
	if len(c.wake) > 0 {
		return
	}
	select {
	case c.wake <- time.Now():
	default:
	}
}

// SetService keeps a Service and marks it dirty if it changed.
func (c *Catalog) SetService(s model.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.services[s.ID]
	if known && old.Equal(s) {
		return
	}
	if !known {
		c.beginGrace(s.ID)
	}
	c.services[s.ID] = &s
	c.claimed.service(old, &s)
	c.changes.service(c.taken)
	c.touch(s.ID)
}

// DeleteService deletes a Service. Its slices stay until they are deleted themselves: the
// Service may come back before they change.
func (c *Catalog) DeleteService(id model.ServiceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, ok := c.services[id]
	if !ok {
		return
	}
	c.claimed.service(old, nil)
	delete(c.services, id)
	delete(c.since, id)
	c.changes.service(c.taken)
	c.dirty[id] = struct{}{}
	c.notify()
}

// SetSlice keeps a slice under the Service it names. A slice that moved from another Service
// changes both.
func (c *Catalog) SetSlice(s model.Slice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.named[s.ID]
	if old != nil && old.Equal(s) {
		return
	}
	if old != nil && old.Service != s.Service {
		c.dropSlice(old)
	}
	if s.Service == (model.ServiceID{}) {
		return
	}
	if svc, known := c.services[s.Service]; known {
		s.Service = svc.ID // share one copy of its name
	}
	c.changes.slice(c.taken)
	c.claimed.slice(c.named[s.ID], &s)
	c.keepSlice(&s)
	c.trigger(s)
	c.touch(s.Service)
	c.notifyForNodes()
}

// keepSlice puts a slice among those of its Service, in place of one with its name.
func (c *Catalog) keepSlice(s *model.Slice) {
	list := c.slices[s.Service]
	if i, found := findSlice(list, s.ID); found {
		list[i] = s
	} else {
		c.slices[s.Service] = slices.Insert(list, i, s)
	}
	c.named[s.ID] = s
}

func findSlice(list []*model.Slice, id model.SliceID) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(s *model.Slice, id model.SliceID) int { return compareSlice(s.ID, id) })
}

// DeleteSlice deletes a slice.
func (c *Catalog) DeleteSlice(id model.SliceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.named[id]; ok {
		c.changes.slice(c.taken)
		c.dropSlice(s)
	}
}

func (c *Catalog) dropSlice(s *model.Slice) {
	c.claimed.slice(s, nil)
	c.notifyForNodes()
	delete(c.named, s.ID)
	list := c.slices[s.Service]
	if i, found := findSlice(list, s.ID); found {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(c.slices, s.Service)
	} else {
		c.slices[s.Service] = list
	}
	c.touch(s.Service)
}

// touch marks a Service dirty. Slices of an unknown Service (a headless one, or one that has
// not arrived) change nothing yet.
func (c *Catalog) touch(id model.ServiceID) {
	if _, known := c.services[id]; !known {
		return
	}
	c.dirty[id] = struct{}{}
	c.notify()
}

// SetState records how complete an origin is. The catalog never waits for an origin that was
// not passed to New.
func (c *Catalog) SetState(origin model.Origin, state source.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, awaited := c.states[origin]
	if !awaited || old == state {
		return
	}
	c.states[origin] = state
	c.log.Info("source changed state", zap.String("source", string(origin)),
		zap.Stringer("state", state), zap.Int("services", len(c.services)))
	c.logUnknownNode(state)
	c.notify()
}
