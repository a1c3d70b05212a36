package catalog

import (
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Await has services that come new wait so long for their first slice, which a
// controller makes a moment later: without endpoints a service is refused, and the
// refusal would be written only to be taken away again. Nothing waits that was there
// before, or that came before the first Take. It is for the time before the sources run.
func (c *Catalog) Await(patience time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.patience = patience
}

// await notes a service that is new. One that is dirty already has been there.
func (c *Catalog) await(id model.ServiceID) {
	if _, dirty := c.dirty[id]; dirty || c.patience == 0 || !c.took || len(c.slices[id]) > 0 {
		return
	}
	c.since[id] = time.Now()
}

// held returns the services that go on waiting and when the first of them is due. Of
// the others nothing is remembered.
func (c *Catalog) held() (held map[model.ServiceID]struct{}, until time.Time) {
	held = map[model.ServiceID]struct{}{}
	if len(c.since) == 0 {
		return held, until
	}
	now := time.Now()
	for id, since := range c.since {
		due := since.Add(c.patience)
		if len(c.slices[id]) > 0 || !now.Before(due) {
			delete(c.since, id)
			continue
		}
		held[id] = struct{}{}
		if until.IsZero() || due.Before(until) {
			until = due
		}
	}
	if len(held) == 0 && len(c.since) == 0 { // nor how many there once were
		c.since = map[model.ServiceID]time.Time{}
	}
	return held, until
}
