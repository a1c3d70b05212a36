package ipvs

import (
	"context"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// An audit looks at virtual servers and destinations twice. A survey of all of them, one
// cheap read in pieces, tells which are not as they are believed to be; it may pass over
// some and show some twice, so nothing follows from it but a doubt. What is in doubt is
// then read exactly, and only that makes drift.
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

// survey is what the round in progress has seen. Its maps are used again by each.
type survey struct {
	seen, doubted map[vserver.ServerKey]struct{}
	// unread is why the last one could not be read.
	unread string
}

// beginSurvey is the first piece of a survey, which orders those that follow.
func (m *Mode) beginSurvey(ctx context.Context) (dataplane.Drift, error) {
	clear(m.survey.seen)
	clear(m.survey.doubted)
	if err := m.deps.Servers.BeginSurvey(ctx); err != nil {
		return nil, m.withoutSurvey(ctx, err)
	}
	m.inspections = append(m.inspections, alone(m.goOnSurveying))
	return nil, nil
}

func (m *Mode) goOnSurveying(ctx context.Context) (dataplane.Drift, error) {
	left := m.destinations.Left()
	done, err := m.deps.Servers.Survey(ctx, func(k vserver.ServerKey, shown vserver.Sketch) {
		m.judge(k, shown, left[k])
	})
	switch {
	case err != nil:
		return nil, m.withoutSurvey(ctx, err)
	case !done:
		m.inspections = append(m.inspections, alone(m.goOnSurveying))
	default:
		m.survey.unread = ""
		missed := m.missed()
		if missed && m.servers.Counts().Desired <= cheapDump || m.rounds%seldom == 0 {
			m.inspections = append(m.inspections, of("servers", m.inspectAllServers))
		}
		m.inspections = append(m.inspections, m.exactly(m.inDoubt())...)
		m.inspections = append(m.inspections, m.briefly(m.believable())...)
	}
	return nil, nil
}

// missed puts in doubt what is believed and was not shown, and tells whether there is any.
// A list that passes over servers of ours may pass over strangers, too.
func (m *Mode) missed() (some bool) {
	for k := range m.servers.Actual() {
		if _, seen := m.survey.seen[k]; !seen {
			m.survey.doubted[k], some = struct{}{}, true
		}
	}
	return some
}

// judge compares what is shown of a server, of which left are to be deleted, with what is
// believed.
func (m *Mode) judge(k vserver.ServerKey, shown vserver.Sketch, left []vserver.DestinationKey) {
	have, believed := m.servers.Believed(k)
	if !believed {
		if m.sees(k) {
			m.survey.doubted[k] = struct{}{}
		}
		return
	}
	m.survey.seen[k] = struct{}{}
	if m.rounds%seldom == turn(k) || shown != m.sketch(k, have, left) {
		m.survey.doubted[k] = struct{}{}
	}
}

// sees tells whether a server is ours, if it is there.
func (m *Mode) sees(k vserver.ServerKey) bool { return m.servers.Known(k) || m.order.owns(k) }

// sketch draws a server as it is believed to be.
func (m *Mode) sketch(k vserver.ServerKey, s vserver.Server, left []vserver.DestinationKey) vserver.Sketch {
	out := vserver.SketchOf(k, s)
	for dk := range m.destinations.Of(k, left) {
		if d, ok := m.destinations.Believed(dk); ok {
			out.Add(dk, d)
		}
	}
	return out
}

// turn is in which of seldom rounds a server is read exactly whatever is shown of it. It
// is the same for as long as the server lives, and spread evenly over addresses and ports.
func turn(k vserver.ServerKey) uint64 {
	h := uint64(k.Port)<<8 | uint64(k.Protocol)
	for _, b := range k.Addr.As16() {
		h = h*31 + uint64(b)
	}
	return h * 0x9e3779b97f4a7c15 >> 32 % seldom
}

// inDoubt lists what a survey leaves to be read, in order.
func (m *Mode) inDoubt() []vserver.ServerKey {
	return slices.SortedFunc(maps.Keys(m.survey.doubted), vserver.CompareServers)
}

// believable lists the servers of which a survey leaves nothing in doubt, in order.
func (m *Mode) believable() []vserver.ServerKey {
	keys := make([]vserver.ServerKey, 0, len(m.survey.seen))
	for k := range m.survey.seen {
		if _, doubted := m.survey.doubted[k]; !doubted {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, vserver.CompareServers)
	return keys
}

// exactly is how the given servers are read by themselves, and briefly without their
// destinations.
func (m *Mode) exactly(keys []vserver.ServerKey) []inspection {
	return inPieces(keys, m.inspectServers)
}

func (m *Mode) briefly(keys []vserver.ServerKey) []inspection {
	return inPieces(keys, m.inspectBriefly)
}

func inPieces(keys []vserver.ServerKey, read func(context.Context, []vserver.ServerKey) (dataplane.Drift, error)) []inspection {
	var pieces []inspection
	for piece := range slices.Chunk(keys, serversAPiece) {
		pieces = append(pieces, inspection{"servers", func(ctx context.Context) (dataplane.Drift, error) { return read(ctx, piece) }})
	}
	return pieces
}

// withoutSurvey has the round read everything exactly, and tells why, once.
func (m *Mode) withoutSurvey(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if text := err.Error(); text != m.survey.unread {
		m.log.Warn("cannot read the kernel's list of virtual servers, audits read each server instead, which costs more", zap.Error(err))
		m.survey.unread = text
	}
	if m.servers.Counts().Desired <= cheapDump || m.rounds%seldom == 0 {
		m.inspections = append(m.inspections, of("servers", m.inspectAllServers))
	}
	keys := slices.SortedFunc(maps.Keys(maps.Collect(m.servers.AllDesired())), vserver.CompareServers)
	m.inspections = append(m.inspections, m.exactly(keys)...)
	return nil
}
