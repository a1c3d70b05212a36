package catalog

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Catalog is the Sink of all sources and the one place the agent reads from. It
// is safe for concurrent use.
type Catalog struct {
	log  *zap.Logger
	self string
	wake chan struct{}

	mu       sync.Mutex
	services map[model.ServiceID]*model.Service
	// slices are kept under the service they name, known or not, so that order
	// of arrival does not matter. Slices that name none are not kept.
	slices map[model.ServiceID]map[model.SliceID]model.Slice
	// owner finds the entry of slices by the slice's own name.
	owner map[model.SliceID]model.ServiceID
	// dirty services have changed since the last Take.
	dirty map[model.ServiceID]struct{}
	// patience is how long a new service waits for its first slice, and since is when
	// those came that wait, all of them dirty.
	patience time.Duration
	since    map[model.ServiceID]time.Time
	took     bool // there was a Take
	// states has exactly the origins that must have spoken.
	states map[model.Origin]source.State
	// nodes is our own Node as each origin tells it.
	nodes       map[model.Origin]model.Node
	gone        map[model.Origin]bool // a Node that was deleted and is still what we go by
	nodeChanged bool
	// book has the addresses of all Nodes.
	book addressBook
	// begun is when the catalog was made; triggers are those of the changes since the
	// last Take, and changes what was counted.
	begun    time.Time
	triggers []Trigger
	changes  Changes
}

var _ source.Sink = (*Catalog)(nil)

// New makes an empty catalog for the node named self. It is in sync once every
// one of origins has said so.
func New(log *zap.Logger, self string, origins ...model.Origin) *Catalog {
	c := &Catalog{
		log:      log.Named("catalog"),
		self:     self,
		wake:     make(chan struct{}, 1),
		services: map[model.ServiceID]*model.Service{},
		slices:   map[model.ServiceID]map[model.SliceID]model.Slice{},
		owner:    map[model.SliceID]model.ServiceID{},
		dirty:    map[model.ServiceID]struct{}{},
		since:    map[model.ServiceID]time.Time{},
		states:   map[model.Origin]source.State{},
		nodes:    map[model.Origin]model.Node{},
		gone:     map[model.Origin]bool{},
		book:     newAddressBook(),
		begun:    time.Now(),
	}
	for _, o := range origins {
		c.states[o] = source.Starting
	}
	return c
}

// Wake is ready to receive when something changed since the last Take. One slot:
// any number of changes in between is one wake.
func (c *Catalog) Wake() <-chan struct{} { return c.wake }

// poke wakes the reader; a full slot means that it will look anyway.
func (c *Catalog) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// SetService keeps a Service and marks it dirty unless it is what we had.
func (c *Catalog) SetService(s model.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.services[s.ID]
	if known && old.Equal(s) {
		return
	}
	if !known {
		c.await(s.ID)
	}
	c.services[s.ID] = &s
	c.changes.service()
	c.touch(s.ID)
}

// DeleteService forgets a Service. Its slices stay until they are deleted
// themselves: it may come back before they change.
func (c *Catalog) DeleteService(id model.ServiceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.services[id]; !ok {
		return
	}
	delete(c.services, id)
	delete(c.since, id)
	c.changes.service()
	c.dirty[id] = struct{}{}
	c.poke()
}

// SetSlice keeps a slice under the service it names. One that moved from another
// service changes both.
func (c *Catalog) SetSlice(s model.Slice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, ok := c.owner[s.ID]; ok {
		if c.slices[owner][s.ID].Equal(s) {
			return
		}
		if owner != s.Service {
			c.dropSlice(owner, s.ID)
		}
	}
	if s.Service == (model.ServiceID{}) {
		return
	}
	c.changes.slice()
	if c.slices[s.Service] == nil {
		c.slices[s.Service] = map[model.SliceID]model.Slice{}
	}
	c.slices[s.Service][s.ID] = s
	c.trigger(s)
	c.owner[s.ID] = s.Service
	c.touch(s.Service)
}

// DeleteSlice forgets a slice.
func (c *Catalog) DeleteSlice(id model.SliceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, ok := c.owner[id]; ok {
		c.changes.slice()
		c.dropSlice(owner, id)
	}
}

func (c *Catalog) dropSlice(owner model.ServiceID, id model.SliceID) {
	delete(c.owner, id)
	delete(c.slices[owner], id)
	if len(c.slices[owner]) == 0 {
		delete(c.slices, owner)
	}
	c.touch(owner)
}

// touch marks a service dirty. Slices of a service we have not been told of (a
// headless one, or one still on its way) interest nobody yet.
func (c *Catalog) touch(id model.ServiceID) {
	if _, known := c.services[id]; !known {
		return
	}
	c.dirty[id] = struct{}{}
	c.poke()
}

// SetState notes how complete an origin is. Origins not named to New are
// listened to but never waited for.
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
	c.poke()
}
