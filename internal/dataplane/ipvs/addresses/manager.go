package addresses

import (
	"context"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Kernel is the part of kernel/link that the manager uses.
type Kernel interface {
	Ensure(ctx context.Context) (created bool, err error)
	List(ctx context.Context) (map[netip.Addr]struct{}, error)
	Write(ctx context.Context, changes []link.Change) []error
	ListRoutes(ctx context.Context) (map[netip.Prefix]struct{}, error)
	WriteRoutes(ctx context.Context, changes []link.RouteChange) []error
	ListDetached(ctx context.Context) (map[netip.Addr]bool, error)
	WriteDetached(ctx context.Context, changes []link.Change) []error
}

// Entries are the set entries by which packets to addresses are marked.
type Entries interface {
	// Has reports whether an entry is in place.
	Has(k sets.Key) bool
	WantEntry(k sets.Key, wanted bool)
}

// Order holds what rows wait for in other tables (prerequisites.go of the mode).
type Order struct {
	WaitRoute    func(netip.Prefix) bool
	WaitAddress  func(netip.Addr) bool
	HoldAddress  func(netip.Addr) bool
	WaitDetached func(netip.Addr) bool
}

// Options describe a Manager.
type Options struct {
	Log          *zap.Logger
	Kernel       Kernel
	Entries      Entries
	Families     []model.Family
	Binding      Binding
	ServiceCIDRs []netip.Prefix
	Order        Order
	// BaseChanged is called when other chains and sets are needed than before (Needs, Guarded).
	BaseChanged func()
}

// Manager owns what makes service addresses local: the rows of the tables "addresses", "routes" and
// "detached".
type Manager struct {
	Addresses *delta.Table[netip.Addr, struct{}]
	Routes    *delta.Table[netip.Prefix, struct{}]
	Detached  *delta.Table[netip.Addr, bool]

	options     Options
	log         *zap.Logger
	entries     Entries
	baseChanged func()
	host        model.Host
	// claims are of the frontends that need an address.
	claims  *delta.Claims[model.FrontendKey, netip.Addr, struct{}]
	binding binding
	// dsr are the addresses from which backends answer themselves, or did.
	dsr map[netip.Addr]struct{}
	// capturing counts the frontends with captured ports, by family; captures are the claims on
	// their addresses of those that do not refuse.
	capturing map[model.Family]int
	captures  *delta.Claims[model.FrontendKey, netip.Addr, struct{}]
	cleared   bool
}

// New returns a manager that wants no address.
func New(o Options) *Manager {
	newClaims := func() *delta.Claims[model.FrontendKey, netip.Addr, struct{}] {
		return delta.NewClaims[model.FrontendKey, netip.Addr, struct{}](model.FrontendKey.Compare)
	}
	m := &Manager{
		options: o, log: o.Log, entries: o.Entries, baseChanged: o.BaseChanged,
		claims: newClaims(), dsr: map[netip.Addr]struct{}{}, capturing: map[model.Family]int{}, captures: newClaims(),
	}
	alike := func(struct{}, struct{}) bool { return true }
	m.Routes = delta.NewTable(routeStore{o.Kernel}, delta.Options[netip.Prefix, struct{}]{
		Name: "routes", Compare: link.ComparePrefixes, Equal: alike, Wait: o.Order.WaitRoute,
		Hold: func(p netip.Prefix, _ bool) bool { return m.LacksAddresses(p) },
	})
	m.Addresses = delta.NewTable(addressStore{o.Kernel}, delta.Options[netip.Addr, struct{}]{
		Name: "addresses", Compare: netip.Addr.Compare, Equal: alike, Wait: o.Order.WaitAddress,
		Hold: func(a netip.Addr, _ bool) bool {
			return o.Order.HoldAddress(a) || m.Detached.PendingDelete(a) || m.Keeps(a)
		},
	})
	m.Detached = delta.NewTable(detachedStore{o.Kernel}, delta.Options[netip.Addr, bool]{
		Name: "detached", Compare: netip.Addr.Compare, Equal: func(a, b bool) bool { return a == b }, Wait: o.Order.WaitDetached,
	})
	m.Addresses.OnApplied(m.onBound)
	return m
}

// Stage returns the stage of the addresses, which bounds how many of them one pass gives up.
func (m *Manager) Stage() Stage { return Stage{m.Addresses, &m.binding.pacer} }

// Paced returns how many addresses the last pass left to the next.
func (m *Manager) Paced() int { return m.binding.pacer.Held() }

// SetHost replaces what is known of this machine: which ranges may be routed depends on it.
func (m *Manager) SetHost(host model.Host) {
	m.host = host
	m.binding.judged = false
}

// OnChange follows one frontend.
func (m *Manager) OnChange(c dataplane.Change) {
	holdings := m.claims.Set(c.Key, bound(c.New))
	m.direct(c)
	m.capture(c)
	for _, h := range holdings {
		m.wantAddress(h.Key, h.Held)
	}
}

// bound lists the addresses that a frontend needs bound, one or none.
func bound(f *model.Frontend) map[netip.Addr]struct{} {
	if f == nil || !f.Bind {
		return nil
	}
	return map[netip.Addr]struct{}{f.Key.Addr: {}}
}

// Load reads routes, addresses and detached addresses.
func (m *Manager) Load(ctx context.Context) error {
	for _, load := range []func(context.Context) (int, error){m.loadRoutes, m.Addresses.Load, m.Detached.Load} {
		if _, err := load(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Clear wants no route any more; the addresses go with their frontends.
func (m *Manager) Clear() {
	m.cleared, m.binding = true, binding{}
	for _, p := range slices.Collect(func(yield func(netip.Prefix) bool) {
		for p := range m.Routes.AllDesired() {
			if !yield(p) {
				return
			}
		}
	}) {
		m.Routes.DeleteDesired(p)
	}
}

// Claimants lists the frontends that need an address bound, the holder first.
func (m *Manager) Claimants(a netip.Addr) []model.FrontendKey { return m.claims.Claimants(a) }

// CaptureClaimants lists the frontends of which packets to an address are captured.
func (m *Manager) CaptureClaimants(a netip.Addr) []model.FrontendKey { return m.captures.Claimants(a) }

// Local reports whether packets to an address come to this machine: it is bound, routed or detached, or
// another link has it.
func (m *Manager) Local(a netip.Addr) bool {
	_, bound := m.Addresses.Believed(a)
	_, detached := m.Detached.Believed(a)
	_, onLink := m.host.Links[a]
	for p := range m.Routes.Actual() {
		bound = bound || p.Contains(a)
	}
	return bound || detached || onLink
}

// Needs returns which chains and sets of a family are needed for addresses from which backends answer
// themselves, and for captured ports.
func (m *Manager) Needs(f model.Family) (direct, capture bool) {
	return m.answered(f), m.capturing[f] > 0
}

// InspectAddresses reads the device; one that is gone is made again.
func (m *Manager) InspectAddresses(ctx context.Context) (int, error) {
	if _, err := m.options.Kernel.Ensure(ctx); err != nil {
		return 0, err
	}
	return m.Addresses.Load(ctx)
}

// OnLinkLost makes the device again, whose addresses are all gone.
func (m *Manager) OnLinkLost(ctx context.Context) error {
	m.Addresses.LoadRows(map[netip.Addr]struct{}{})
	_, err := m.options.Kernel.Ensure(ctx)
	return err
}
