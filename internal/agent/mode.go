package agent

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// mode is the Dataplane with its optional parts. Each part that the Dataplane lacks is absent.
type mode struct {
	dataplane.Dataplane
	dataplane.Bootstrapper
	dataplane.Auditor
	dataplane.Timed
	dataplane.Drainer
	dataplane.Explainer
	dataplane.Announcer
}

// openMode asks a Dataplane once which optional parts it has.
func openMode(d dataplane.Dataplane) mode {
	none := &absent{frontends: dataplane.NewFrontends()}
	m := mode{d, none, none, none, none, none, none}
	if p, ok := d.(dataplane.Bootstrapper); ok {
		m.Bootstrapper = p
	}
	if p, ok := d.(dataplane.Auditor); ok {
		m.Auditor = p
	}
	if p, ok := d.(dataplane.Timed); ok {
		m.Timed = p
	}
	if p, ok := d.(dataplane.Drainer); ok {
		m.Drainer = p
	}
	if p, ok := d.(dataplane.Explainer); ok {
		m.Explainer = p
	}
	if p, ok := d.(dataplane.Announcer); ok {
		m.Announcer = p
	}
	return m
}

// absent implements the optional parts of a mode that lacks them: it has nothing to do and nothing to
// show.
type absent struct{ frontends *dataplane.Frontends }

// errNotInspectable answers a question about rows of a mode that cannot show any.
var errNotInspectable = errors.New("the mode cannot show its rows")

func (*absent) HasBaseState() bool { return false }

func (*absent) Audit(context.Context, time.Duration) (dataplane.Audited, error) {
	return dataplane.Audited{Done: true}, nil
}

func (*absent) Sample(context.Context) (dataplane.Sampled, error) { return dataplane.Sampled{}, nil }

func (*absent) Due() time.Time { return time.Time{} }

func (*absent) Drains() dataplane.Drains { return dataplane.Drains{} }

func (*absent) Moving(*dataplane.MovingList) {}

func (a *absent) Frontends() *dataplane.Frontends { return a.frontends }

func (*absent) Pending(int) []dataplane.PendingTable { return nil }

func (*absent) PacketPath(dataplane.Packet) dataplane.PacketPath { return dataplane.PacketPath{} }

func (*absent) RowsOf([]model.FrontendKey) (dataplane.FrontendRows, error) {
	return dataplane.FrontendRows{}, errNotInspectable
}

func (*absent) WriteRows(io.Writer, string) error { return errNotInspectable }

func (*absent) Snapshot(string) (func(io.Writer) error, error) { return nil, errNotInspectable }

func (*absent) Announcement(netip.Addr) *dataplane.Announcement { return nil }
