package telemetry

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Carried is the traffic of a virtual server since it was created.
type Carried struct {
	Connections           uint64
	PacketsIn, PacketsOut uint64
	BytesIn, BytesOut     uint64
}

// since is the traffic after last. A server that has less was made again: all it has is new.
func (c Carried) since(last Carried) Carried {
	if c.Connections < last.Connections || c.PacketsIn < last.PacketsIn || c.BytesIn < last.BytesIn || c.PacketsOut < last.PacketsOut || c.BytesOut < last.BytesOut {
		return c
	}
	return Carried{
		c.Connections - last.Connections, c.PacketsIn - last.PacketsIn, c.PacketsOut - last.PacketsOut, c.BytesIn - last.BytesIn, c.BytesOut - last.BytesOut,
	}
}

func (c Carried) plus(o Carried) Carried {
	return Carried{
		c.Connections + o.Connections, c.PacketsIn + o.PacketsIn, c.PacketsOut + o.PacketsOut, c.BytesIn + o.BytesIn, c.BytesOut + o.BytesOut,
	}
}

// VirtualServer is the state of one frontend in the kernel.
type VirtualServer struct {
	Scheduler string
	Carried   Carried
}

// Load has the current connections of the destinations of one frontend. Quiet are those of weight
// 0.
type Load struct {
	Active, Inactive uint64
	Quiet            []netip.AddrPort
}

// othersName is the Service name for all Services that have no series of their own. No Service has
// that name, nor an empty namespace.
const othersName = "(others)"

// serviceCounters keeps an account for each Service, or as many as may have one, and one for all others. The
// value of a counter only grows. It sums the traffic of each virtual server since the previous
// read, even if another Service had the server before, and keeps the sum when the server is
// deleted.
type serviceCounters struct {
	most      int
	own       map[serviceName]*account
	others    account
	summed    int // Services in others
	frontends map[model.FrontendKey]*booked
	round     uint32
}

// serviceName is the label of a series: two sources may each have a Service of the same name.
type serviceName struct{ namespace, name string }

// account is one Service, or all others.
type account struct {
	serviceName
	carried          Carried
	active, inactive uint64
	// serving takes new connections, by what was planned; kept and draining are
	// destinations of weight 0 in the kernel.
	serving, kept, draining int
	schedulers              []string
	// partial: some of its servers are not in the list of loads.
	partial bool
}

// booked is one frontend.
type booked struct {
	to    *account
	owner *resting
	fe    *model.Frontend
	last  Carried
	// carried and loaded are the rounds in which the kernel had it.
	carried, loaded uint32
}

// resting collects the destinations of weight 0 of one Service: they belong to several frontends,
// and count once.
type resting struct{ quiet map[netip.AddrPort]struct{} }

func newServiceCounters(most int) serviceCounters {
	return serviceCounters{most: most, own: map[serviceName]*account{}, others: account{serviceName: serviceName{name: othersName}}, frontends: map[model.FrontendKey]*booked{}}
}

// accounts are those that are shown.
func (l *serviceCounters) accounts() iter.Seq[*account] {
	return func(yield func(*account) bool) {
		for _, a := range l.own {
			if !yield(a) {
				return
			}
		}
		if l.summed > 0 || l.others.carried != (Carried{}) {
			yield(&l.others)
		}
	}
}

// rename takes the Services that there are, sorted. Those that have an account keep it;
// accounts that are free go to the first by name.
func (l *serviceCounters) rename(known []agent.ServiceInfo) {
	known = slices.DeleteFunc(known, func(k agent.ServiceInfo) bool { return len(k.Frontends) == 0 })
	there := make(map[serviceName]struct{}, len(known))
	for _, k := range known {
		there[nameOf(k)] = struct{}{}
	}
	maps.DeleteFunc(l.own, func(n serviceName, _ *account) bool { _, is := there[n]; return !is })
	for _, a := range l.own {
		a.serving = 0
	}
	l.others.serving, l.summed = 0, 0
	before := l.frontends
	l.frontends = make(map[model.FrontendKey]*booked, len(before))
	for _, k := range known {
		l.book(k, before)
	}
}

func nameOf(k agent.ServiceInfo) serviceName { return serviceName{k.ID.Namespace, k.ID.Name} }

// book enters the frontends of one Service.
func (l *serviceCounters) book(k agent.ServiceInfo, before map[model.FrontendKey]*booked) {
	to := l.accountOf(nameOf(k))
	to.serving += serving(k.Frontends)
	owner := &resting{}
	for i := range k.Frontends {
		fe := &k.Frontends[i]
		if slices.ContainsFunc(k.Lost, func(c dataplane.Conflict) bool { return c.Key == fe.Key }) {
			continue // another Service has it
		}
		b := booked{to: to, owner: owner, fe: fe}
		if was := before[fe.Key]; was != nil {
			b.last, b.carried, b.loaded = was.last, was.carried, was.loaded
		}
		l.frontends[fe.Key] = &b
	}
}

func (l *serviceCounters) accountOf(n serviceName) *account {
	if a := l.own[n]; a != nil {
		return a
	}
	if len(l.own) >= l.most {
		l.summed++
		return &l.others
	}
	a := &account{serviceName: n}
	l.own[n] = a
	return a
}

// serving counts the different backends that take new connections.
func serving(frontends []model.Frontend) int {
	var all []netip.AddrPort
	for _, fe := range frontends {
		for _, b := range fe.Backends {
			if b.Weight > 0 {
				all = append(all, b.Addr)
			}
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return len(slices.Compact(all))
}

// carriedRound takes one reading of what servers have carried.
type carriedRound struct{ l *serviceCounters }

func (l *serviceCounters) begin() carriedRound {
	l.round++
	for a := range l.all() {
		a.schedulers = a.schedulers[:0]
	}
	return carriedRound{l}
}

func (l *serviceCounters) all() iter.Seq[*account] {
	return func(yield func(*account) bool) {
		for _, a := range l.own {
			if !yield(a) {
				return
			}
		}
		yield(&l.others)
	}
}

func (r carriedRound) server(k model.FrontendKey, v VirtualServer) {
	b := r.l.frontends[k]
	if b == nil {
		return // of another program, or not known yet
	}
	b.to.carried = b.to.carried.plus(v.Carried.since(b.last))
	b.last, b.carried = v.Carried, r.l.round
	if !slices.Contains(b.to.schedulers, v.Scheduler) {
		b.to.schedulers = append(b.to.schedulers, v.Scheduler)
	}
}

// end deletes the counters of servers that are gone. A server that comes back starts at zero.
func (r carriedRound) end() {
	for _, b := range r.l.frontends {
		if b.carried != r.l.round {
			b.last = Carried{}
		}
	}
}

// loadRound takes one reading of what destinations have.
type loadRound struct{ l *serviceCounters }

func (l *serviceCounters) beginLoads() loadRound {
	for a := range l.all() {
		a.active, a.inactive, a.kept, a.draining, a.partial = 0, 0, 0, 0, false
	}
	for _, b := range l.frontends {
		b.owner.quiet = nil
	}
	return loadRound{l}
}

func (r loadRound) load(k model.FrontendKey, now Load) {
	b := r.l.frontends[k]
	if b == nil {
		return
	}
	b.loaded = r.l.round
	b.to.active += now.Active
	b.to.inactive += now.Inactive
	for _, addr := range now.Quiet {
		b.rests(addr)
	}
}

// rests counts a destination that gets no new connections: its endpoint is kept, it is a backend
// with a configured weight of 0, or it is gone and drains.
func (b *booked) rests(addr netip.AddrPort) {
	if _, counted := b.owner.quiet[addr]; counted {
		return
	}
	if slices.ContainsFunc(b.fe.Backends, func(o model.Backend) bool { return o.Addr == addr }) {
		return
	}
	if b.owner.quiet == nil {
		b.owner.quiet = map[netip.AddrPort]struct{}{}
	}
	b.owner.quiet[addr] = struct{}{}
	if _, kept := slices.BinarySearchFunc(b.fe.Kept, addr, netip.AddrPort.Compare); kept {
		b.to.kept++
	} else {
		b.to.draining++
	}
}

// end marks the accounts of which the list lacked a server.
func (r loadRound) end() {
	for _, b := range r.l.frontends {
		if b.carried == r.l.round && b.loaded != r.l.round {
			b.to.partial = true
		}
	}
}
