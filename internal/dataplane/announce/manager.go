package announce

import (
	"context"
	"fmt"
	"net/netip"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Kernel is the part of kernel/link that the manager uses.
type Kernel interface {
	ListAnnounced(ctx context.Context, table uint32) (map[link.Announcement]struct{}, error)
	WriteAnnounced(ctx context.Context, changes []link.AnnounceChange) []error
	RulesTo(ctx context.Context, table uint32) ([]uint32, error)
}

// Options describe a Manager.
type Options struct {
	Log *zap.Logger
	// Kernel is nil for a mode without a kernel, which holds no routes.
	Kernel Kernel
	// Table is the routing table of the routes; 0 announces nothing, and deletes the routes that are found.
	Table uint32
	// InPlace reports whether the rows that serve a frontend are in place.
	InPlace func(model.FrontendKey) bool
	// Left reports whether the routes are those of another mode, which runs; nil is never.
	Left func() bool
}

// Manager owns the rows of the table "announced".
type Manager struct {
	Rows *delta.Table[link.Announcement, struct{}]

	of   Options
	host model.Host
	node Node
	// final: the node was withdrawn for good.
	final bool
	// misused is why no route may be in the table; empty is that they may.
	misused string
	// frontends have the lack of each frontend that has an address of interest.
	frontends map[netip.Addr]map[model.FrontendKey]lack
}

// New returns a manager that announces nothing.
func New(o Options) *Manager {
	m := &Manager{of: o, frontends: map[netip.Addr]map[model.FrontendKey]lack{}}
	m.Rows = delta.NewTable(store{o.Kernel}, delta.Options[link.Announcement, struct{}]{
		Name: "announced", Compare: link.Announcement.Compare, Equal: func(struct{}, struct{}) bool { return true },
		Owned: func(link.Announcement) bool { return o.Left == nil || !o.Left() },
		Wait:  func(a link.Announcement) bool { return !m.inPlace(a.Addr) },
	})
	return m
}

// inPlace reports whether a frontend at an address is in place that lacks nothing.
func (m *Manager) inPlace(a netip.Addr) bool {
	for k, lack := range m.frontends[a] {
		if lack == lacksNothing && m.of.InPlace(k) {
			return true
		}
	}
	return false
}

// OnChange follows one frontend.
func (m *Manager) OnChange(c dataplane.Change) {
	if m.of.Table == 0 {
		return
	}
	a := c.Key.Addr
	if mayBe(c.New) {
		if m.frontends[a] == nil {
			m.frontends[a] = map[model.FrontendKey]lack{}
		}
		m.frontends[a][c.Key] = lackOf(c.New)
	} else {
		delete(m.frontends[a], c.Key)
		if len(m.frontends[a]) == 0 {
			delete(m.frontends, a)
		}
	}
	m.want(a)
}

// want sets whether the route of an address is desired. Before the node is judged, that is so where it
// is in place: a process that died has left it, and the node has served all the time.
func (m *Manager) want(a netip.Addr) {
	row := link.Announcement{Table: m.of.Table, Addr: a}
	node := m.node
	if !node.judged() {
		_, node.Serves = m.Rows.Believed(row)
	}
	if m.why(a, node) == "" {
		m.Rows.SetDesired(row, struct{}{})
	} else {
		m.Rows.DeleteDesired(row)
	}
}

// why returns why an address is not announced; empty is that it is.
func (m *Manager) why(a netip.Addr, node Node) string {
	least := lacksEndpoint
	for _, lack := range m.frontends[a] {
		least = min(least, lack)
	}
	if m.misused != "" {
		return m.misused
	}
	return decide(least, m.host.Holder(a), node)
}

func (m *Manager) wantAll() {
	for a := range m.frontends {
		m.want(a)
	}
}

// SetHost replaces what is known of this machine: an address that a machine has is not announced.
func (m *Manager) SetHost(h model.Host) {
	m.host = h
	m.wantAll()
}

// SetNode replaces what is known of this node.
func (m *Manager) SetNode(n Node) {
	if m.of.Table == 0 || m.final || n == m.node {
		return
	}
	m.node = n
	m.wantAll()
	if n.Serves {
		m.of.Log.Info("this node serves, and announces addresses", zap.Int("count", m.Rows.Counts().Desired))
	} else {
		m.of.Log.Warn("this node announces no address any more, routes are withdrawn", zap.String("reason", n.Why))
	}
}

// Withdraw announces nothing any more, whatever SetNode says later.
func (m *Manager) Withdraw(why string) {
	m.SetNode(Node{Why: why})
	m.final = true
}

// Load reads the routes, and the rules that lead to their table.
func (m *Manager) Load(ctx context.Context) (drifted int, err error) {
	if err := m.checkTable(ctx); err != nil {
		return 0, err
	}
	drifted, err = m.Rows.Load(ctx)
	m.wantAll()
	return drifted, err
}

// Inspect is Load for an audit. Where there should be no route, it reads in a full round only.
func (m *Manager) Inspect(ctx context.Context, full bool) (drifted int, err error) {
	if c := m.Rows.Counts(); c.Desired+c.Deletes == 0 && !full {
		return 0, nil
	}
	return m.Load(ctx)
}

// checkTable finds out whether packets of this machine would follow the routes, which drop them.
func (m *Manager) checkTable(ctx context.Context) error {
	if m.of.Kernel == nil || m.of.Table == 0 {
		return nil
	}
	rules, err := m.of.Kernel.RulesTo(ctx, m.of.Table)
	if err != nil {
		return err
	}
	why := Misused(m.of.Table, rules)
	if why != m.misused && why != "" {
		m.of.Log.Warn("no address is announced: choose a table that no routing rule leads to (--announce-table)", zap.String("reason", why))
	}
	m.misused = why
	return nil
}

// Lost records that another process deleted a route.
func (m *Manager) Lost(a link.Announcement) { m.Rows.DropActual(a) }

// Announcement returns whether an address is announced; nil if the setting or the address has nothing to
// do with it.
func (m *Manager) Announcement(a netip.Addr) *dataplane.Announcement {
	if m.frontends[a] == nil {
		return nil
	}
	row := link.Announcement{Table: m.of.Table, Addr: a}
	_, there := m.Rows.Believed(row)
	out := &dataplane.Announcement{Table: m.of.Table, Announced: there}
	if _, wanted := m.Rows.Desired(row); !wanted {
		out.Why = m.why(a, m.node)
	} else if !there {
		out.Why = "its route is not in the kernel yet"
	}
	return out
}

// Pending lists the rows that are not in place.
func (m *Manager) Pending(most int) dataplane.PendingTable {
	return dataplane.ListPending(m.Rows.Name(), m.Rows.Tracker, most, func(c delta.Change[link.Announcement, struct{}]) string {
		verb := "add"
		if c.Op == delta.Delete {
			verb = "del"
		}
		return fmt.Sprintf("ip route %s %s proto %d", verb, c.Key, link.RouteProtocol)
	})
}

// store reads and writes the routes.
type store struct{ kernel Kernel }

// List returns those of all tables: an agent with another setting may have left some.
func (s store) List(ctx context.Context) (map[link.Announcement]struct{}, error) {
	if s.kernel == nil {
		return map[link.Announcement]struct{}{}, nil
	}
	return s.kernel.ListAnnounced(ctx, 0)
}

// Write hands all changes over in one batch.
func (s store) Write(ctx context.Context, changes []delta.Change[link.Announcement, struct{}]) []error {
	batch := make([]link.AnnounceChange, len(changes))
	for i, c := range changes {
		batch[i] = link.AnnounceChange{Op: link.Add, Announcement: c.Key}
		if c.Op == delta.Delete {
			batch[i].Op = link.Delete
		}
	}
	return s.kernel.WriteAnnounced(ctx, batch)
}
