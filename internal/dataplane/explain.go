package dataplane

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// An Explainer describes the rows of a mode and the path of a packet through them. The loop goroutine
// alone calls its methods.
type Explainer interface {
	// Frontends returns the frontends that Services want, and which Service has each; read-only.
	Frontends() *Frontends
	// Pending lists the rows that are not in place, in stage order, at most that many of each table.
	// Tables without any are left out.
	Pending(most int) []PendingTable
	// PacketPath returns the path of the first packet of a connection to a frontend in force.
	PacketPath(p Packet) PacketPath
	// RowsOf returns the rows of some frontends in force, and the rules that all frontends share.
	RowsOf(keys []model.FrontendKey) (FrontendRows, error)
	// WriteRows prints the desired rows of one kind ("servers", "sets", "rules", "addresses") in the
	// text of the operator's own tool.
	WriteRows(w io.Writer, kind string) error
	// Snapshot copies the desired rows of one kind. The function that it returns prints the copy like
	// WriteRows, and may be called by any goroutine.
	Snapshot(kind string) (write func(io.Writer) error, err error)
}

// An Announcer shows which addresses a node announces to routers. The loop goroutine alone calls its
// methods.
type Announcer interface {
	// Announcement returns whether an address is announced, nil if it is of no kind that may be.
	Announcement(a netip.Addr) *Announcement
}

// Announcement is whether an address is announced.
type Announcement struct {
	// Table is the routing table of the route that announces it.
	Table uint32 `json:"table"`
	// Announced: the route is in place.
	Announced bool `json:"announced"`
	// Why is the reason of an address that is not announced, or soon will not be.
	Why string `json:"why,omitempty"`
}

// String returns the announcement as a sentence.
func (a Announcement) String() string {
	switch {
	case !a.Announced:
		return "not announced: " + a.Why
	case a.Why != "":
		return fmt.Sprintf("announced in table %d until the route is deleted: %s", a.Table, a.Why)
	}
	return fmt.Sprintf("announced in table %d", a.Table)
}

// FrontendRows are the rows of some frontends.
type FrontendRows struct {
	// Desired has their text by kind (Explainer.WriteRows), but for headers of sets.
	Desired map[string]string `json:"desired"`
	// Pending are those of them that are not in place as far as the mode knows, a line each.
	Pending []string `json:"pending"`
	// Draining are destinations of theirs that have lost their endpoint and keep their
	// connections: server and destination.
	Draining []string `json:"draining"`
}
