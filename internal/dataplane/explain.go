package dataplane

import (
	"io"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Explainer is what a mode tells of itself to those who ask why something works, or does not.
// Like all of a Dataplane it is asked by the loop goroutine alone.
type Explainer interface {
	// Walk tells the way of the first packet of a connection to a frontend in force.
	Walk(p Packet) Walk
	// RowsOf tells of the rows of some frontends in force, and of the rules that all have.
	RowsOf(keys []model.FrontendKey) (FrontendRows, error)
	// Snapshot copies the desired rows of one kind, as Dataplane.WriteRows has them. What it
	// returns prints the copy, and may be called by any goroutine.
	Snapshot(kind string) (write func(io.Writer) error, err error)
}

// FrontendRows are the rows of some frontends.
type FrontendRows struct {
	// Desired has their text by kind (Dataplane.WriteRows), but for headers of sets.
	Desired map[string]string `json:"desired"`
	// Pending are those of them that are not in place as far as the mode knows, a line each.
	Pending []string `json:"pending"`
	// Draining are destinations of theirs that have lost their endpoint and keep their
	// connections: server and destination.
	Draining []string `json:"draining"`
}
