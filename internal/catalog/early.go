package catalog

import (
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Coming tells whether TakeSome may have something: every awaited origin is
// source.Coming at least.
func (c *Catalog) Coming() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.coming()
}

func (c *Catalog) coming() bool {
	for _, s := range c.states {
		if s < source.Coming {
			return false
		}
	}
	return true
}

// TakeSome is Take for the time before the origins are in sync: it returns dirty
// services that have an endpoint already, limit of them at most, those before others
// that first says, else any, sorted by ID. The rest stays dirty; more tells that some of it
// could be taken now. A service without endpoints waits for Take: its slices may still
// come. So does one with external addresses: an endpoint that is not known yet may have them.
func (c *Catalog) TakeSome(limit int, first func(*model.Service) bool) (b Batch, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.coming() {
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
