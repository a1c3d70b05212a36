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

// Relay serves NodePorts on loopback addresses.
type Relay interface {
	// Set replaces the ports of a Service; an empty list ends them.
	Set(id model.ServiceID, list []model.Relay)
	// State returns why a port of a Service is not open; empty if it is, or is not to be.
	State(k model.FrontendKey, id model.ServiceID) string
}

// afterPass owns what a receiver has of each Service, and what it is to get after the next pass: a
// receiver must not be ahead of the kernel. It belongs to the loop goroutine.
type afterPass[T any] struct {
	send       func(model.ServiceID, T)
	equal      func(a, b T) bool
	given, due map[model.ServiceID]T
}

func newAfterPass[T any](send func(model.ServiceID, T), equal func(a, b T) bool) afterPass[T] {
	return afterPass[T]{send, equal, map[model.ServiceID]T{}, map[model.ServiceID]T{}}
}

// want changes the value of a Service at the next flush.
func (a *afterPass[T]) want(id model.ServiceID, v T) {
	if a.equal(a.given[id], v) {
		delete(a.due, id)
		return
	}
	a.due[id] = v
}

// flush passes on the values that changed, in the order of Services. The zero value is none.
func (a *afterPass[T]) flush() {
	if len(a.due) == 0 {
		return
	}
	var none T
	for _, id := range slices.SortedFunc(maps.Keys(a.due), model.ServiceID.Compare) {
		v := a.due[id]
		a.send(id, v)
		a.given[id] = v
		if a.equal(v, none) {
			delete(a.given, id)
		}
	}
	a.due = map[model.ServiceID]T{}
}

// healthAnswers passes on the answers of health-check ports.
type healthAnswers struct {
	afterPass[model.HealthCheck]
	health Health // nil is none
}

func newHealthAnswers(h Health) healthAnswers {
	send := func(model.ServiceID, model.HealthCheck) {}
	if h != nil {
		send = h.Set
	}
	return healthAnswers{newAfterPass(send, func(a, b model.HealthCheck) bool { return a == b }), h}
}

func (a *healthAnswers) listen(addrs []netip.Addr) {
	if a.health != nil {
		a.health.Listen(addrs)
	}
}

// relayedPorts passes on the ports of Services on loopback addresses.
type relayedPorts = afterPass[[]model.Relay]

func newRelayedPorts(r Relay) relayedPorts {
	send := func(model.ServiceID, []model.Relay) {}
	if r != nil {
		send = r.Set
	}
	return newAfterPass(send, func(a, b []model.Relay) bool { return slices.EqualFunc(a, b, model.Relay.Equal) })
}
