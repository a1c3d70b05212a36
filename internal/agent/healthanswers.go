package agent

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Health answers load balancers that ask for the local endpoints of a Service.
type Health interface {
	// Set replaces the answer for a Service; the zero HealthCheck ends it.
	Set(id model.ServiceID, h model.HealthCheck)
	// Listen replaces the addresses on which NodePorts answer.
	Listen(addrs []netip.Addr)
}

// healthAnswers owns what Health answers, and what it is to answer after the next pass: an answer must
// not be ahead of the kernel. It belongs to the loop goroutine.
type healthAnswers struct {
	health     Health // nil is none
	given, due map[model.ServiceID]model.HealthCheck
}

func newHealthAnswers(h Health) healthAnswers {
	return healthAnswers{health: h, given: map[model.ServiceID]model.HealthCheck{}, due: map[model.ServiceID]model.HealthCheck{}}
}

// want changes the answer for a Service at the next flush.
func (a *healthAnswers) want(id model.ServiceID, h model.HealthCheck) {
	if a.given[id] == h {
		delete(a.due, id)
		return
	}
	a.due[id] = h
}

// flush passes on the answers that changed, in the order of Services.
func (a *healthAnswers) flush() {
	if len(a.due) == 0 {
		return
	}
	for _, id := range slices.SortedFunc(maps.Keys(a.due), model.ServiceID.Compare) {
		h := a.due[id]
		if a.health != nil {
			a.health.Set(id, h)
		}
		a.given[id] = h
		if h == (model.HealthCheck{}) {
			delete(a.given, id)
		}
	}
	a.due = map[model.ServiceID]model.HealthCheck{}
}

func (a *healthAnswers) listen(addrs []netip.Addr) {
	if a.health != nil {
		a.health.Listen(addrs)
	}
}
