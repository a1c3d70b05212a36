package catalog

import (
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// SetEndpointGrace sets how long a new Service waits for its first slice, which a controller
// creates a moment later. Without endpoints the Service is refused, and the rows of the refusal
// would be written only to be removed again. A Service that existed before, or that arrived
// before the first Take, does not wait. Call it before the sources run.
func (c *Catalog) SetEndpointGrace(grace time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endpointGrace = grace
}

// beginGrace records the arrival of a Service. A dirty Service is not new.
func (c *Catalog) beginGrace(id model.ServiceID) {
	if _, dirty := c.dirty[id]; dirty || c.endpointGrace == 0 || !c.taken || len(c.slices[id]) > 0 {
		return
	}
	c.since[id] = time.Now()
}

// inGrace returns the Services that still wait, and when the wait of the first of them ends. It
// drops the others.
func (c *Catalog) inGrace() (held map[model.ServiceID]struct{}, until time.Time) {
	held = map[model.ServiceID]struct{}{}
	if len(c.since) == 0 {
		return held, until
	}
	now := time.Now()
	for id, since := range c.since {
		due := since.Add(c.endpointGrace)
		if len(c.slices[id]) > 0 || !now.Before(due) {
			delete(c.since, id)
			continue
		}
		held[id] = struct{}{}
		if until.IsZero() || due.Before(until) {
			until = due
		}
	}
	if len(held) == 0 && len(c.since) == 0 { // and shrink the map
		c.since = map[model.ServiceID]time.Time{}
	}
	return held, until
}
