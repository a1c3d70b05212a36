package catalog

import (
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Listing reports whether TakeReady may return Services: every awaited origin is at least in
// state source.Listing.
func (c *Catalog) Listing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listing()
}

func (c *Catalog) listing() bool {
	for _, s := range c.states {
		if s < source.Listing {
			return false
		}
	}
	return true
}

// TakeReady is Take for the time before the origins are in sync. It returns at most limit
// dirty Services that have an endpoint already, preferably those for which first returns true,
// sorted by ID. The others stay dirty; more reports whether some of them could be taken now. A
// Service without endpoints waits for Take, because its slices may still arrive. So does a
// Service with external addresses, because an endpoint that is not known yet may have them.
func (c *Catalog) TakeReady(limit int, first func(*model.Service) bool) (b Batch, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.listing() {
		return Batch{}, false
	}
	c.takeNodes(&b)
	var urgent, others []model.ServiceID
	for id := range c.dirty {
		switch s := c.services[id]; {
		case s == nil || !c.hasEndpoint(id) || len(s.ExternalIPs)+len(s.Ingress) > 0:
		case first(s):
			urgent = append(urgent, id)
		default:
			others = append(others, id)
		}
	}
	ids := append(urgent, others...)
	more = len(ids) > limit
	ids = ids[:min(limit, len(ids))]
	slices.SortFunc(ids, model.ServiceID.Compare)
	for _, id := range ids {
		b.Services = append(b.Services, c.input(id))
		delete(c.dirty, id)
	}
	return b, more
}

func (c *Catalog) hasEndpoint(id model.ServiceID) bool {
	for _, s := range c.slices[id] {
		if len(s.Endpoints) > 0 {
			return true
		}
	}
	return false
}
