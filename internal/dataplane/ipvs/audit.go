package ipvs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// The kernel does not tell when virtual servers, sets or rules change, so drift can only be
// found by reading. An audit reads everything once, in pieces small enough that a change
// never waits long for one.

// inspection reads one piece and returns how many rows drifted.
type inspection struct {
	// table is what it reads, empty where no other piece reads the same.
	table string
	read  func(ctx context.Context) (dataplane.Drift, error)
}

// of is an inspection of one table.
func of(table string, read func(ctx context.Context) (int, error)) inspection {
	return inspection{table, func(ctx context.Context) (dataplane.Drift, error) {
		n, err := read(ctx)
		return dataplane.Drift{table: n}, err
	}}
}

// alone is an inspection that no other one is like.
func alone(read func(ctx context.Context) (dataplane.Drift, error)) inspection {
	return inspection{read: read}
}

// serversAPiece is how many virtual servers one inspection reads, each with one
// message and one list of destinations.
const serversAPiece = 64

// seldom is in how many audits the destinations of each server are read exactly once, though
// nothing is wrong with them.
const seldom = 16

// cheapDump is up to how many virtual servers each round has a dump of all of them, where
// it cannot survey them; beyond, only every seldom-th round has. Without either, servers
// that somebody put on an address of ours do not show, and the cost of a dump in the
// kernel grows with the square of their number.
const cheapDump = 4096

// Audit goes on with the one in progress, or begins one.
func (m *Mode) Audit(ctx context.Context, budget time.Duration) (dataplane.Audited, error) {
	drift, began := dataplane.Drift{}, time.Now()
	if len(m.inspections) == 0 {
		m.inspections = m.round(false)
	}
	var errs []error
	for until := began.Add(budget); len(m.inspections) > 0; {
		next := m.inspections[0]
		m.inspections = m.inspections[1:]
		found, err := next.read(ctx)
		for table, n := range found {
			if n > 0 {
				drift[table] += n
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
		if errors.Is(err, context.DeadlineExceeded) { // each of its kind would cost its deadline
			m.inspections = slices.DeleteFunc(m.inspections, func(i inspection) bool { return i.table != "" && i.table == next.table })
		}
		if !time.Now().Before(until) {
			break
		}
	}
	return dataplane.Audited{Drift: drift, Done: len(m.inspections) == 0, Cost: time.Since(began)}, errors.Join(errs...)
}

// round lists the pieces: what attracts traffic first. The survey of servers, which orders
// more, is the last of them, or the first.
func (m *Mode) round(serversFirst bool) []inspection {
	var pieces []inspection
	if serversFirst {
		pieces = append(pieces, alone(m.beginSurvey))
	}
	pieces = append(pieces,
		alone(m.retune),
		of("addresses", m.addresses.InspectAddresses),
		of("routes", m.inspectRoutes),
		of("detached", m.inspectDetached),
		alone(m.inspectRules),
		of("nftables", m.tables.Load),
		alone(m.inspectDispatch),
		of("sets", m.sets.Sets.Load),
	)
	counts := m.sets.CountEntries()
	for name := range m.sets.Sets.AllDesired() {
		pieces = append(pieces, of("members", func(ctx context.Context) (int, error) { return m.sets.Inspect(ctx, name, counts[name]) }))
	}
	m.rounds++
	if !serversFirst {
		pieces = append(pieces, alone(m.beginSurvey))
	}
	return pieces
}

// retune sets again what the mode asks of the kernel and another program has changed, such
// as expire_quiescent_template, without which affinity holds on to what drains.
func (m *Mode) retune(ctx context.Context) (dataplane.Drift, error) {
	if m.deps.KeepTuned == nil {
		return nil, nil
	}
	return nil, m.deps.KeepTuned(ctx)
}

// inspectRules reads the rules, unless the kernel tells that no process has written any since
// they were read last.
func (m *Mode) inspectRules(ctx context.Context) (dataplane.Drift, error) {
	if g := m.deps.Rules.Generation(ctx); g != 0 && g == m.rulesRead {
		return nil, nil
	}
	return m.loadRules(ctx)
}

// fullRound reports whether this round reads what should not exist, too.
func (m *Mode) fullRound() bool { return m.rounds%seldom == 0 }

func (m *Mode) inspectRoutes(ctx context.Context) (int, error) {
	return m.addresses.InspectRoutes(ctx, m.fullRound())
}

func (m *Mode) inspectDetached(ctx context.Context) (int, error) {
	return m.addresses.InspectDetached(ctx, m.fullRound())
}

// inspectAllServers compares the list of virtual servers, not their destinations.
func (m *Mode) inspectAllServers(ctx context.Context) (int, error) {
	before := maps.Collect(m.servers.Actual())
	drift, err := m.servers.Load(ctx)
	if err != nil {
		return 0, err
	}
	for k := range before {
		if _, there := m.servers.Believed(k); !there {
			m.serverLost(k) // and its destinations with it
		}
	}
	return drift, nil
}

// inspectServers compares some virtual servers and their destinations. Servers that went
// while the audit was waiting are passed over.
func (m *Mode) inspectServers(ctx context.Context, keys []vserver.ServerKey) (dataplane.Drift, error) {
	there, servers, err := m.compareServers(ctx, keys)
	drift, left := dataplane.Drift{"servers": servers}, m.destinations.Left()
	for _, k := range there {
		n, err := m.destinations.Inspect(ctx, k, left[k])
		drift["destinations"] += n
		if err != nil {
			return drift, err
		}
	}
	return drift, err
}

// inspectBriefly compares some virtual servers, not their destinations.
func (m *Mode) inspectBriefly(ctx context.Context, keys []vserver.ServerKey) (dataplane.Drift, error) {
	_, servers, err := m.compareServers(ctx, keys)
	return dataplane.Drift{"servers": servers}, err
}

// compareServers reads some virtual servers, and returns those that are there.
func (m *Mode) compareServers(ctx context.Context, keys []vserver.ServerKey) (there []vserver.ServerKey, drift int, err error) {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k vserver.ServerKey) bool { return !m.sees(k) })
	found, err := m.deps.Servers.GetServers(ctx, keys)
	if err != nil {
		return nil, 0, err
	}
	for _, k := range keys {
		have, believed := m.servers.Believed(k)
		s, is := found[k]
		switch {
		case !is && believed:
			m.serverLost(k)
			drift++
		case is && (!believed || have != s):
			m.servers.SetActual(k, s)
			drift++
		}
		if is {
			there = append(there, k)
		}
	}
	return there, drift, nil
}
