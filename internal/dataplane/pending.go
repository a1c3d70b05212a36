package dataplane

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// PendingTable is what of one table is not in place.
type PendingTable struct {
	Table string
	// Rows are some of them, sorted by operation and text; More is how many there are besides.
	Rows []PendingRow
	More int
}

// PendingRow is one row that is not in place.
type PendingRow struct {
	Op delta.Op
	// Text is what an operator would type to have it in place.
	Text string
	// Failed: writing it was tried, and it rests until the next retry.
	Failed bool
	// Orphan: it was found and nobody ever asked for it. It stays while some input cannot be read.
	Orphan bool
}

// ListPending puts the pending rows of one table into words, no more than most.
func ListPending[K comparable, V any](table string, t *delta.Tracker[K, V], most int, text func(delta.Change[K, V]) string) PendingTable {
	rows, more := t.PendingRows(most)
	out := PendingTable{Table: table, More: more}
	for _, r := range rows {
		out.Rows = append(out.Rows, PendingRow{Op: r.Op, Text: text(r.Change), Failed: r.Resting, Orphan: r.Orphan})
	}
	slices.SortFunc(out.Rows, func(a, b PendingRow) int { return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.Text, b.Text)) })
	return out
}

// Moving is a destination that leaves a frontend by and by (it drains), or comes to it (it climbs).
type Moving struct {
	Frontend model.FrontendKey
	// Service and PortName are those of the frontend.
	Service  model.ServiceID
	PortName string
	Backend  netip.AddrPort
	// Climbs: its weight, which is Weight, climbs to Full. Otherwise it drains.
	Climbs       bool
	Weight, Full uint16
	// Since is when it began, zero where the endpoint is kept for as long as its connections last. Until is
	// when it ends at the latest, zero for never.
	Since, Until time.Time
	// Connections of one that drains, as they were counted last.
	Connections ConnectionState
}

// ConnectionState is what is known of the connections of a destination that drains.
type ConnectionState uint8

// The states.
const (
	ConnectionsUnknown ConnectionState = iota // some are established, or nobody has counted yet
	ConnectionsClosed                         // none is established, closed ones are remembered
	ConnectionsNone                           // there is none
)

// MovingList collects what moves, no more than Most that are wanted.
type MovingList struct {
	Most int
	Want func(Moving) bool // nil wants all
	Rows []Moving
	More int
}

// Add takes one.
func (l *MovingList) Add(m Moving) {
	switch {
	case l.Want != nil && !l.Want(m):
	case len(l.Rows) < l.Most:
		l.Rows = append(l.Rows, m)
	default:
		l.More++
	}
}
