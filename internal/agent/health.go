package agent

import (
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Health answers load balancers that ask for the local endpoints of a Service.
type Health interface {
	// Set replaces what is answered for a Service; the zero HealthCheck ends it.
	Set(id model.ServiceID, h model.HealthCheck)
	// Listen says on which addresses NodePorts answer now.
	Listen(addrs []netip.Addr)
}

// healthBook remembers what Health was told and what it is to be told. An answer
// must not be ahead of the kernel, so it waits for the pass that writes what it
// speaks about.
type healthBook struct {
	told, due map[model.ServiceID]model.HealthCheck
}

func newHealthBook() healthBook {
	return healthBook{told: map[model.ServiceID]model.HealthCheck{}, due: map[model.ServiceID]model.HealthCheck{}}
}

func (b *healthBook) want(id model.ServiceID, h model.HealthCheck) {
	if b.told[id] == h {
		delete(b.due, id)
		return
	}
	b.due[id] = h
}

// tellHealth passes on what has changed, in the order of Services.
func (a *Agent) tellHealth() {
	if len(a.health.due) == 0 {
		return
	}
	for _, id := range slices.SortedFunc(maps.Keys(a.health.due), model.ServiceID.Compare) {
		h := a.health.due[id]
		if a.opts.Health != nil {
			a.opts.Health.Set(id, h)
		}
		a.health.told[id] = h
		if h == (model.HealthCheck{}) {
			delete(a.health.told, id)
		}
	}
	a.health.due = map[model.ServiceID]model.HealthCheck{}
}

// debt knows since when something waits for the kernel. All goroutines may ask.
type debt struct {
	served  atomic.Bool // a pass has left most of what is wanted in place
	since   atomic.Pointer[time.Time]
	paid    atomic.Pointer[time.Time] // the latest pass that left nothing to do
	trouble atomic.Pointer[trouble]   // nil is none
}

// trouble is why passes fail.
type trouble struct {
	failures uint64
	reason   string
}

func (d *debt) owe(now time.Time) {
	if d.since.Load() == nil {
		d.since.CompareAndSwap(nil, &now)
	}
}

func (d *debt) pay() {
	d.served.Store(true)
	d.since.Store(nil)
}

// Healthy reports whether traffic may be sent to this node: Services are in the kernel,
// and no change has waited for longer than two audit periods, which stand for kube-proxy's
// two sync periods. It is safe for all goroutines, and a stuck loop does not block it.
func (a *Agent) Healthy() bool {
	c := a.Condition()
	return c.Served && !c.Late(time.Now())
}

// settleDebt judges a pass. A few rows that the kernel refuses for good are no
// reason to turn away the traffic of all Services; half of what is wanted is.
func (a *Agent) settleDebt(now time.Time) {
	wanted, missing := 0, 0
	for _, t := range a.mode.Tables() {
		wanted += t.Desired
		missing += t.Updates
	}
	if 2*missing <= wanted {
		a.debt.pay()
	} else {
		a.debt.owe(now)
	}
}
