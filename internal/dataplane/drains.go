package dataplane

// Drains is how destinations fare whose endpoints are backends no more and whose
// connections go on.
type Drains struct {
	// Now is how many drain at the moment.
	Now int
	// Ended counts those that do not any more, by how it ended, since the mode was
	// made.
	Ended map[DrainEnd]uint64
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
