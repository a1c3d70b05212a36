package source

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// State is what a source knows about the completeness of what it delivered.
type State uint8

// The states of a source, in the order it passes through them.
const (
	// Starting: nothing may be concluded yet.
	Starting State = iota
	// Listing: Nodes are all known, and what has been delivered is so, but more is on its
	// way. It may be served where nothing is served yet; nothing follows from what is
	// missing. A source may leave it out.
	Listing
	// Partial: everything readable has been delivered, but some input could not
	// be read at all. Serve it; remove nothing that merely looks orphaned.
	Partial
	// Complete: an object that was not delivered does not exist.
	Complete
)

// String prints the state as status output shows it.
func (s State) String() string {
	switch s {
	case Starting:
		return "starting"
	case Listing:
		return "coming"
	case Partial:
		return "partial"
	case Complete:
		return "complete"
	}
	return "unknown"
}

// Sink receives what sources know. Set replaces, Delete of something unknown is
// nothing. Every call may come from another goroutine, values handed over are
// never changed again.
type Sink interface {
	SetService(model.Service)
	DeleteService(model.ServiceID)
	SetSlice(model.Slice)
	DeleteSlice(model.SliceID)
	SetNode(model.Origin, model.Node)
	DeleteNode(model.Origin, string)
	// SetState declares how complete the deliveries of one origin are. It comes
	// after the deliveries it speaks about.
	SetState(model.Origin, State)
}

// Source delivers objects to a Sink.
type Source interface {
	// Run blocks and returns nil when ctx ends; an error means that the source
	// cannot work at all.
	Run(ctx context.Context, sink Sink) error
}
