package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/servers"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Kernel is the part of kernel/vserver that audits use.
type Kernel interface {
	GetServers(ctx context.Context, keys []vserver.ServerKey) (map[vserver.ServerKey]vserver.Server, error)
	BeginSurvey(ctx context.Context) error
	Survey(ctx context.Context, visit func(vserver.ServerKey, vserver.Digest)) (done bool, err error)
}

// Options describe an Auditor.
type Options struct {
	Log    *zap.Logger
	Kernel Kernel

	Sets         *sets.Manager
	Chains       *chains.Manager
	Servers      *servers.Manager
	Destinations *destinations.Manager
	Addresses    *addresses.Manager
	Tables       *delta.Table[nftables.Key, struct{}]
	Announced    *announce.Manager

	// Owns reports whether a virtual server is ours.
	Owns func(vserver.ServerKey) bool
	// ServerLost is called with a virtual server that does not exist any more.
	ServerLost func(vserver.ServerKey)
	// Dispatch looks for rules of another proxy mode.
	Dispatch func(ctx context.Context) (dataplane.Drift, error)
	// KeepTuned sets sysctls again that another program has changed; nil sets none.
	KeepTuned func(ctx context.Context) error
}

// Auditor finds rows that another process changed.
type Auditor struct {
	of Options

	// inspections are the remaining steps of the audit in progress.
	inspections []inspection
	rounds      uint64
	survey      survey
}

// New returns an auditor that has read nothing.
func New(o Options) *Auditor {
	return &Auditor{of: o, survey: survey{seen: map[vserver.ServerKey]struct{}{}, doubted: map[vserver.ServerKey]struct{}{}}}
}

// Restart drops the round in progress: the next call of Audit begins another.
func (a *Auditor) Restart() { a.inspections = nil }

// inspection reads one piece and returns how many rows drifted.
type inspection struct {
	// table is the table that it reads; it is empty where no other piece reads the same.
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

// alone is an inspection that is the only one of its kind.
func alone(read func(ctx context.Context) (dataplane.Drift, error)) inspection {
	return inspection{read: read}
}

// serversAPiece is how many virtual servers one inspection reads, each with one message and one list
// of destinations.
const serversAPiece = 64

// seldom is in how many audits the destinations of each server, and sets that no other program has
// changed, are read exactly once, though nothing is wrong with them.
const seldom = 16

// cheapDump is up to how many virtual servers each round has a dump of all of them, where it cannot
// survey them; beyond, only every seldom-th round has. Only a survey or a dump shows servers that
// another process put on an address of ours. The cost of a dump in the kernel grows with the square of
// their number.
const cheapDump = 4096

// Audit implements dataplane.Auditor: it continues the audit in progress, or begins one.
func (a *Auditor) Audit(ctx context.Context, budget time.Duration) (dataplane.Audited, error) {
	drift, began := dataplane.Drift{}, time.Now()
	if len(a.inspections) == 0 {
		a.inspections = a.round(false)
	}
	var errs []error
	for until := began.Add(budget); len(a.inspections) > 0; {
		next := a.inspections[0]
		a.inspections = a.inspections[1:]
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
			a.inspections = slices.DeleteFunc(a.inspections, func(i inspection) bool { return i.table != "" && i.table == next.table })
		}
		if !time.Now().Before(until) {
			break
		}
	}
	return dataplane.Audited{Drift: drift, Done: len(a.inspections) == 0, Cost: time.Since(began)}, errors.Join(errs...)
}

// round lists the pieces. Tables that attract traffic come first. The survey of servers, which adds
// pieces, is the last of them, or the first.
func (a *Auditor) round(serversFirst bool) []inspection {
	var pieces []inspection
	if serversFirst {
		pieces = append(pieces, alone(a.beginSurvey))
	}
	pieces = append(pieces,
		alone(a.retune),
		of("addresses", a.of.Addresses.InspectAddresses),
		of("routes", a.inspectRoutes),
		of("detached", a.inspectDetached),
		of("announced", a.inspectAnnounced),
		alone(a.of.Chains.Inspect),
		of("nftables", a.of.Tables.Load),
		alone(a.of.Dispatch),
		of("sets", a.of.Sets.Sets.Load),
	)
	counts := a.of.Sets.CountEntries()
	for name := range a.of.Sets.Sets.AllDesired() {
		pieces = append(pieces, of("members", func(ctx context.Context) (int, error) {
			if !a.fullRound() && a.of.Sets.Unchanged(ctx, name) {
				return 0, nil
			}
			return a.of.Sets.Inspect(ctx, name, counts[name])
		}))
	}
	a.rounds++
	if !serversFirst {
		pieces = append(pieces, alone(a.beginSurvey))
	}
	return pieces
}

// retune sets sysctls again that another program has changed, such as expire_quiescent_template:
// without it, affinity keeps clients on destinations that drain.
func (a *Auditor) retune(ctx context.Context) (dataplane.Drift, error) {
	if a.of.KeepTuned == nil {
		return nil, nil
	}
	return nil, a.of.KeepTuned(ctx)
}

// fullRound reports whether this round also reads tables that should be empty, and sets that no other
// program has changed.
func (a *Auditor) fullRound() bool { return a.rounds%seldom == 0 }

func (a *Auditor) inspectRoutes(ctx context.Context) (int, error) {
	return a.of.Addresses.InspectRoutes(ctx, a.fullRound())
}

func (a *Auditor) inspectDetached(ctx context.Context) (int, error) {
	return a.of.Addresses.InspectDetached(ctx, a.fullRound())
}

func (a *Auditor) inspectAnnounced(ctx context.Context) (int, error) {
	return a.of.Announced.Inspect(ctx, a.fullRound())
}

// ReloadAddresses reads the device and our routes again, after events were lost.
func (a *Auditor) ReloadAddresses(ctx context.Context) error {
	_, err := a.of.Addresses.InspectAddresses(ctx)
	_, routesErr := a.inspectRoutes(ctx)
	_, detachedErr := a.inspectDetached(ctx)
	_, announcedErr := a.inspectAnnounced(ctx)
	return errors.Join(err, routesErr, detachedErr, announcedErr)
}
