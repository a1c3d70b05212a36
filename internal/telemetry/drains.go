package telemetry

import (
	"maps"
	"sync/atomic"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// drains is the last report of the mode about draining destinations.
type drains struct {
	last atomic.Pointer[dataplane.Drains]
}

// drainEnds have a series from the start, for rate() does not see a first value.
var drainEnds = []dataplane.DrainEnd{dataplane.DrainEmpty, dataplane.DrainDeadline, dataplane.DrainServiceDeleted, dataplane.DrainBack}

func (m *Metrics) newDrains() {
	m.drains.last.Store(&dataplane.Drains{})
	m.pullGauge(ours+"draining_destinations", "Destinations that get no new connections and keep their existing ones.",
		func(e emit) { e(float64(m.drains.last.Load().Now)) })
	m.pullGauge(ours+"trash_destinations", "Destinations deleted in the last four minutes. The kernel may keep them in a list that it searches for each new destination.",
		func(e emit) { e(float64(m.drains.last.Load().Trash.Len(time.Now()))) })
	m.pullCounter(ours+"drained_total", "Destinations that have drained, by the reason why draining ended.",
		func(e emit) {
			ended := m.drains.last.Load().Ended
			for _, end := range drainEnds {
				e(float64(ended[end]), string(end))
			}
		}, "reason")
}

// Drains shows how many destinations drain, and how many have.
func (m *Metrics) Drains(d dataplane.Drains) {
	d.Ended = maps.Clone(d.Ended) // the mode keeps counting
	m.drains.last.Store(&d)
}
