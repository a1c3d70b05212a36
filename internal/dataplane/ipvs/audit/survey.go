package audit

import (
	"context"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// An audit reads virtual servers and destinations twice. A survey, one cheap read of all of them in
// pieces, shows which differ from the rows in memory. It may pass over some and show some twice, so a
// difference only puts a server in doubt. Servers in doubt are then read exactly, and only that
// makes drift.
//
//	as believed                       done
//	not as believed, or not shown     in doubt
//	not believed, at an address ours  in doubt
//	some of ours not shown            strangers are looked for in a dump of all servers,
//	                                  as they are in every 16th audit
//	its turn, in every 16th audit     in doubt: the list leaves out the thresholds of
//	                                  destinations
//	all others                        read without their destinations: the list leaves out
//	                                  the flags of schedulers

// survey has the servers that the round in progress has seen. Each round uses its maps again.
type survey struct {
	seen, doubted map[vserver.ServerKey]struct{}
	// unread is why the last one could not be read.
	unread string
}

// beginSurvey is the first piece of a survey, which orders those that follow.
func (a *Auditor) beginSurvey(ctx context.Context) (dataplane.Drift, error) {
	clear(a.survey.seen)
	clear(a.survey.doubted)
	if err := a.of.Kernel.BeginSurvey(ctx); err != nil {
		return nil, a.withoutSurvey(ctx, err)
	}
	a.inspections = append(a.inspections, alone(a.goOnSurveying))
	return nil, nil
}

func (a *Auditor) goOnSurveying(ctx context.Context) (dataplane.Drift, error) {
	left := a.of.Destinations.Left()
	done, err := a.of.Kernel.Survey(ctx, func(k vserver.ServerKey, shown vserver.Digest) {
		a.judge(k, shown, left[k])
	})
	switch {
	case err != nil:
		return nil, a.withoutSurvey(ctx, err)
	case !done:
		a.inspections = append(a.inspections, alone(a.goOnSurveying))
	default:
		a.survey.unread = ""
		unseen := a.suspectUnseen()
		if unseen && a.of.Servers.Counts().Desired <= cheapDump || a.rounds%seldom == 0 {
			a.inspections = append(a.inspections, of("servers", a.inspectAllServers))
		}
		a.inspections = append(a.inspections, a.exactly(a.suspects())...)
		a.inspections = append(a.inspections, a.briefly(a.believable())...)
	}
	return nil, nil
}

// suspectUnseen marks known servers that the list did not show as suspect, and reports whether
// there are any. A list that misses servers of ours may also miss servers of other programs.
func (a *Auditor) suspectUnseen() (some bool) {
	for k := range a.of.Servers.Actual() {
		if _, seen := a.survey.seen[k]; !seen {
			a.survey.doubted[k], some = struct{}{}, true
		}
	}
	return some
}

// judge compares the digest of a server with the row in memory. left are destinations that are to be
// deleted.
func (a *Auditor) judge(k vserver.ServerKey, shown vserver.Digest, left []vserver.DestinationKey) {
	have, believed := a.of.Servers.Believed(k)
	if !believed {
		if a.sees(k) {
			a.survey.doubted[k] = struct{}{}
		}
		return
	}
	a.survey.seen[k] = struct{}{}
	if a.rounds%seldom == turn(k) || shown != a.digest(k, have, left) {
		a.survey.doubted[k] = struct{}{}
	}
}

// sees reports whether a server is ours, if it is in place.
func (a *Auditor) sees(k vserver.ServerKey) bool { return a.of.Servers.Known(k) || a.of.Owns(k) }

// digest returns the digest of the known state of a server.
func (a *Auditor) digest(k vserver.ServerKey, s vserver.Server, left []vserver.DestinationKey) vserver.Digest {
	out := vserver.DigestOf(k, s)
	for dk := range a.of.Destinations.Of(k, left) {
		if d, ok := a.of.Destinations.Believed(dk); ok {
			out.Add(dk, d)
		}
	}
	return out
}

// turn returns in which of seldom rounds a server is read exactly whatever its digest shows. It is the
// same for as long as the server lives, and spread evenly over addresses and ports.
func turn(k vserver.ServerKey) uint64 {
	h := uint64(k.Port)<<8 | uint64(k.Protocol)
	for _, b := range k.Addr.As16() {
		h = h*31 + uint64(b)
	}
	return h * 0x9e3779b97f4a7c15 >> 32 % seldom
}

// suspects lists the servers that a survey puts in doubt, in order.
func (a *Auditor) suspects() []vserver.ServerKey {
	return slices.SortedFunc(maps.Keys(a.survey.doubted), vserver.CompareServers)
}

// believable lists the servers that a survey shows in their known state, in order.
func (a *Auditor) believable() []vserver.ServerKey {
	keys := make([]vserver.ServerKey, 0, len(a.survey.seen))
	for k := range a.survey.seen {
		if _, doubted := a.survey.doubted[k]; !doubted {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, vserver.CompareServers)
	return keys
}

// exactly returns the pieces that read some servers with their destinations.
func (a *Auditor) exactly(keys []vserver.ServerKey) []inspection {
	return inPieces(keys, a.inspectServers)
}

// briefly returns the pieces that read some servers without their destinations.
func (a *Auditor) briefly(keys []vserver.ServerKey) []inspection {
	return inPieces(keys, a.inspectBriefly)
}

func inPieces(keys []vserver.ServerKey, read func(context.Context, []vserver.ServerKey) (dataplane.Drift, error)) []inspection {
	var pieces []inspection
	for piece := range slices.Chunk(keys, serversAPiece) {
		pieces = append(pieces, inspection{"servers", func(ctx context.Context) (dataplane.Drift, error) { return read(ctx, piece) }})
	}
	return pieces
}

// withoutSurvey makes the round read everything exactly, and logs the reason once.
func (a *Auditor) withoutSurvey(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if text := err.Error(); text != a.survey.unread {
		a.of.Log.Warn("cannot read the kernel's list of virtual servers, audits read each server instead, which costs more", zap.Error(err))
		a.survey.unread = text
	}
	if a.of.Servers.Counts().Desired <= cheapDump || a.rounds%seldom == 0 {
		a.inspections = append(a.inspections, of("servers", a.inspectAllServers))
	}
	keys := slices.SortedFunc(maps.Keys(maps.Collect(a.of.Servers.AllDesired())), vserver.CompareServers)
	a.inspections = append(a.inspections, a.exactly(keys)...)
	return nil
}
