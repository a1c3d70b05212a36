package catalog

import (
	"slices"
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
	wake chan time.Time

	mu       sync.Mutex
	services map[model.ServiceID]*model.Service
	// slices are kept under the service they name, known or not, so that order
	// of arrival does not matter, sorted by ID. Slices that name none are not kept.
	slices map[model.ServiceID][]*model.Slice
	// named finds a slice by its own name.
	named map[model.SliceID]*model.Slice
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
	// claimed has the addresses that Services claim, and who else has them.
	claimed claimBook
	// weights has what Nodes say of the weight of their endpoints.
	weights weightBook
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
		wake:     make(chan time.Time, 1),
		services: map[model.ServiceID]*model.Service{},
		slices:   map[model.ServiceID][]*model.Slice{},
		named:    map[model.SliceID]*model.Slice{},
		dirty:    map[model.ServiceID]struct{}{},
		since:    map[model.ServiceID]time.Time{},
		states:   map[model.Origin]source.State{},
		nodes:    map[model.Origin]model.Node{},
		gone:     map[model.Origin]bool{},
		book:     newAddressBook(),
		claimed:  newClaimBook(),
		weights:  newWeightBook(),
		begun:    time.Now(),
	}
	for _, o := range origins {
		c.states[o] = source.Starting
	}
	return c
}

// Wake is ready to receive when something changed since the last Take, and tells when
// the first of it came. One slot: any number of changes in between is one wake.
func (c *Catalog) Wake() <-chan time.Time { return c.wake }

// poke wakes the reader; a full slot means that it will look anyway.
func (c *Catalog) poke() {
	if len(c.wake) > 0 {
		return
	}
	select {
	case c.wake <- time.Now():
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
	c.claimed.service(old, &s)
	c.changes.service(c.took)
	c.touch(s.ID)
}

// DeleteService forgets a Service. Its slices stay until they are deleted
// themselves: it may come back before they change.
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
	c.changes.service(c.took)
	c.dirty[id] = struct{}{}
	c.poke()
}

// SetSlice keeps a slice under the service it names. One that moved from another
// service changes both.
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
		s.Service = svc.ID // one copy of its name
	}
	c.changes.slice(c.took)
	c.claimed.slice(c.named[s.ID], &s)
	c.keepSlice(&s)
	c.trigger(s)
	c.touch(s.Service)
	c.pokeForNodes()
}

// keepSlice puts a slice among those of its service, in place of one of its name.
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

// DeleteSlice forgets a slice.
func (c *Catalog) DeleteSlice(id model.SliceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.named[id]; ok {
		c.changes.slice(c.took)
		c.dropSlice(s)
	}
}

func (c *Catalog) dropSlice(s *model.Slice) {
	c.claimed.slice(s, nil)
	c.pokeForNodes()
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
	c.logUnknownNode(state)
	c.poke()
}
