package dataplane

import (
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// PendingTable has the rows of one table that are not in place.
type PendingTable struct {
	Table string
	// Rows are some of them, in no order; More is how many there are besides.
	Rows []PendingRow
	More int
}

// PendingRow is one row that is not in place.
type PendingRow struct {
	Op delta.Op
	// Text is the command that an operator would type for it. Any goroutine may ask, so that the
	// loop does not.
	Text func() string
	// Failed: writing it was tried, and it rests until the next retry.
	Failed bool
	// Orphan: it was found, and no Service ever wanted it. It stays while some input cannot be
	// read.
	Orphan bool
}

// ListPending lists the pending rows of one table, no more than most. text is called later, only
// for rows that are shown.
func ListPending[K comparable, V any](table string, t *delta.Tracker[K, V], most int, text func(delta.Change[K, V]) string) PendingTable {
	rows, more := t.PendingRows(most)
	out := PendingTable{Table: table, More: more}
	for _, r := range rows {
		out.Rows = append(out.Rows, PendingRow{Op: r.Op, Text: func() string { return text(r.Change) }, Failed: r.Resting, Orphan: r.Orphan})
	}
	return out
}

// Moving is a destination that leaves a frontend gradually (it drains), or enters it gradually
// (slow start).
type Moving struct {
	Frontend model.FrontendKey
	// Service and PortName are those of the frontend.
	Service  model.ServiceID
	PortName string
	Backend  netip.AddrPort
	// Climbs: its weight, which is Weight, rises to Full. Otherwise it drains.
	Climbs       bool
	Weight, Full uint16
	// Since is when it began, zero where the endpoint is kept for as long as its connections last. Until is
	// when it ends at the latest, zero for never.
	Since, Until time.Time
	// Connections of one that drains, as they were counted last: Active are established,
	// Inactive are those being opened or closed, and closed ones that are kept.
	Connections      ConnectionState
	Active, Inactive uint32
}

// ConnectionState has the known facts about the connections of a destination that drains.
type ConnectionState uint8

// The states.
const (
	ConnectionsUnknown ConnectionState = iota // they have not been counted yet
	ConnectionsOpen                           // some are established
	ConnectionsClosed                         // none is established, closed ones are kept
	ConnectionsNone                           // there is none
)

// MovingList collects what moves, in no order.
type MovingList struct {
	// Most is how many are collected. At and To choose frontends and backends; nil is all.
	Most int
	At   func(model.FrontendKey, model.ServiceID) bool
	To   func(netip.AddrPort) bool
	// Rows are the collected rows, and More counts further matching ones.
	Rows []Moving
	More int
}

// Chooses reports whether the list asks for a frontend.
func (l *MovingList) Chooses(f *model.Frontend) bool { return l.At == nil || l.At(f.Key, f.Service) }

// Add takes one at a frontend that is chosen; it is made if it is collected.
func (l *MovingList) Add(to netip.AddrPort, row func() Moving) {
	switch {
	case l.To != nil && !l.To(to):
	case len(l.Rows) < l.Most:
		l.Rows = append(l.Rows, row())
	default:
		l.More++
	}
}
