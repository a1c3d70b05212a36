package dataplane

import "time"

// Drains describes draining destinations, whose endpoints are no longer backends and whose
// connections continue, and destinations in slow start.
type Drains struct {
	// Now is how many drain at the moment.
	Now int
	// Ended counts those that do not any more, by how it ended, since the mode was
	// made.
	Ended map[DrainEnd]uint64
	// Climbing are new destinations in slow start: their weight rises to the full weight
	// (model.Frontend.SlowStart).
	Climbing int
	// Trash is what was deleted lately, drained or not.
	Trash Trash
}

// Trash lists deleted destinations that the kernel still keeps, and searches for each new one.
type Trash []Deleted

// Deleted are so many destinations that the kernel has let go of at that time.
type Deleted struct {
	Until time.Time
	Count int
}

// Len is how many of them there may be at a time.
func (t Trash) Len(now time.Time) int {
	n := 0
	for _, d := range t {
		if now.Before(d.Until) {
			n += d.Count
		}
	}
	return n
}

// DrainEnd is how the draining of a destination ended.
type DrainEnd string

// The ways in which it ends.
const (
	DrainEmpty          DrainEnd = "empty"           // its last connection was over
	DrainDeadline       DrainEnd = "deadline"        // its time was up, and connections were cut
	DrainServiceDeleted DrainEnd = "service_deleted" // its Service went
	DrainBack           DrainEnd = "back"            // its endpoint is a backend again
)
