package catalog

import (
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Changes counts what the sources told that was news.
type Changes struct {
	// Services and Slices count from the beginning; the pending ones are those since
	// the last Take.
	Services, Slices               uint64
	PendingServices, PendingSlices int
	// Last is when the latest of them came. Before the first Take, which ends the start, it is when
	// the first came. Reading the clock for each listed object took a tenth of the start on kernels
	// that need a system call for it.
	Last time.Time
}

func (c *Changes) service(took bool) { c.Services++; c.PendingServices++; c.came(took) }

func (c *Changes) slice(took bool) { c.Slices++; c.PendingSlices++; c.came(took) }

func (c *Changes) came(took bool) {
	if took || c.Last.IsZero() {
		c.Last = time.Now()
	}
}

func (c *Changes) taken() { c.PendingServices, c.PendingSlices = 0, 0 }

// Changes returns what was counted.
func (c *Catalog) Changes() Changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

// Trigger is when a change of endpoints began, somewhere in the cluster.
type Trigger struct {
	Family model.Family
	At     time.Time
}

// maxTriggers bounds what a reader that is stuck leaves here.
const maxTriggers = 10_000

// trigger records when the change behind a slice began, for the metric
// kubeproxy_network_programming_duration_seconds. As kube-proxy does, it ignores changes
// that are older than this process.
func (c *Catalog) trigger(s model.Slice) {
	if s.Triggered.After(c.startTime) && len(c.triggers) < maxTriggers {
		c.triggers = append(c.triggers, Trigger{Family: s.Family, At: s.Triggered})
	}
}
