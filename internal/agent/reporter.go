package agent

import (
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// An EventSink receives what the owner of a Service should know, once for each time that it begins. The
// loop calls it, and it must not block.
type EventSink interface {
	// Unbound reports addresses of the Service that are not bound, because other machines have them
	// (internal/DECISIONS.md, Addresses of other machines). holder names the owner of each. A call with a
	// new address lists all of them.
	Unbound(id model.ServiceID, addrs []netip.Addr, holder func(netip.Addr) string)
	// Refused reports external IPs that the operator does not allow (--external-ip-allowed-cidrs). A call
	// with a new one lists all of them.
	Refused(id model.ServiceID, addrs []netip.Addr)
	// BadAnnotations reports annotations that are not followed, each with the reason. A call with a new
	// one lists all of them.
	BadAnnotations(id model.ServiceID, list []string)
	// TooMany reports that so many frontends of the Service are not served, because it has more than it
	// may have.
	TooMany(id model.ServiceID, beyond model.Beyond)
	// BadNode reports annotations of this Node that are not followed.
	BadNode(list []string)
	// Lost reports new conflicts: another Service has what this one claims (internal/DECISIONS.md,
	// Conflicting Services).
	Lost(id model.ServiceID, list []dataplane.Conflict)
}

// A reporter logs what changed about Services and this node, and sends it to the owners' Events. It keeps
// no state but the bound of its log.
type reporter struct {
	log    *zap.Logger
	writes *zap.Logger // log with at most writeLines lines a second of one message
	events EventSink   // nil is none
}

func newReporter(log *zap.Logger, events EventSink) reporter {
	return reporter{log: log, writes: sampled(log), events: events}
}

func (r *reporter) event(report func(EventSink)) {
	if r.events != nil {
		report(r.events)
	}
}

// reportOutcome logs once what of a Service is not served, and why. The host names the owners of addresses.
func (r *reporter) reportOutcome(id model.ServiceID, before, now *outcome, host *model.Host) {
	if now.skipped != "" && now.skipped != before.skipped {
		r.log.Info("service skipped", zap.Stringer("service", id), zap.String("reason", now.skipped))
	}
	for _, n := range slices.Concat(now.notes, now.remarks) {
		// logUnbound logs a conflict with a node, with the owner of the address.
		if n.Code != model.VIPConflictsWithNode && !slices.Contains(before.notes, n) && !slices.Contains(before.remarks, n) {
			r.log.Log(noteLevel(n.Code), "service note", zap.Stringer("service", id), zap.String("reason", n.Text), zap.String("code", string(n.Code)))
		}
	}
	r.logUnbound(id, before.unbound, now.unbound, host)
	r.sendOutcome(id, before, now, host)
}

// noteLevel returns a low level for a note that is true of every Service for a moment: its slices arrive
// after it.
func noteLevel(code model.NoteCode) zapcore.Level {
	if code == model.NoEndpoints {
		return zap.DebugLevel
	}
	return zap.InfoLevel
}

func (r *reporter) logUnbound(id model.ServiceID, before, now []netip.Addr, host *model.Host) {
	for _, addr := range now {
		if !slices.Contains(before, addr) {
			r.log.Warn("address of a service is not bound, only its ports are served", zap.Stringer("service", id), zap.Stringer("address", addr),
				zap.String("reason", string(model.VIPConflictsWithNode)), zap.String("holder", host.Holder(addr)))
		}
	}
	for _, addr := range before {
		if !slices.Contains(now, addr) {
			r.log.Info("address of a service is free again, no other machine has it", zap.Stringer("service", id), zap.Stringer("address", addr),
				zap.String("reason", string(model.VIPConflictsWithNode)))
		}
	}
}

// sendOutcome sends Events about a Service: each kind when something new is in its list.
func (r *reporter) sendOutcome(id model.ServiceID, before, now *outcome, host *model.Host) {
	if hasNew(before.unbound, now.unbound) {
		r.event(func(e EventSink) { e.Unbound(id, now.unbound, host.Holder) })
	}
	if hasNew(before.refused, now.refused) {
		r.event(func(e EventSink) { e.Refused(id, now.refused) })
	}
	if now.beyond != (model.Beyond{}) && before.beyond == (model.Beyond{}) {
		r.event(func(e EventSink) { e.TooMany(id, now.beyond) })
	}
	if hasNew(before.bad, now.bad) {
		r.event(func(e EventSink) { e.BadAnnotations(id, now.bad) })
	}
}

// hasNew reports whether now has an element that before lacks.
func hasNew[T comparable](before, now []T) bool {
	if len(now) == 0 {
		return false
	}
	known := make(map[T]struct{}, len(before))
	for _, one := range before {
		known[one] = struct{}{}
	}
	return slices.ContainsFunc(now, func(one T) bool { _, is := known[one]; return !is })
}

// reportConflicts logs conflicts, and tells each loser once of the frontends that it lost.
func (r *reporter) reportConflicts(conflicts []dataplane.Conflict) {
	r.logConflicts(conflicts)
	lost := map[model.ServiceID][]dataplane.Conflict{}
	for _, c := range conflicts {
		if !c.Over {
			lost[c.Loser] = append(lost[c.Loser], c)
		}
	}
	for id, list := range lost {
		r.event(func(e EventSink) { e.Lost(id, list) })
	}
}

// logConflicts writes one line for each Service and cause: the first of its frontends, and how many more
// there are.
func (r *reporter) logConflicts(conflicts []dataplane.Conflict) {
	type cause struct {
		loser, winner model.ServiceID
		kind          model.Kind
		over          bool
	}
	of := func(c dataplane.Conflict) cause { return cause{c.Loser, c.Winner, c.Kind, c.Over} }
	more := map[cause]int{}
	var first []dataplane.Conflict
	for _, c := range conflicts {
		k := of(c)
		if _, seen := more[k]; !seen {
			first = append(first, c)
			more[k] = -1
		}
		more[k]++
	}
	for _, c := range first {
		level := zap.WarnLevel
		if c.Over {
			level = zap.InfoLevel
		}
		fields := []zap.Field{zap.Stringer("service", c.Loser), zap.Stringer("frontend", c.Key), zap.String("reason", c.String())}
		if n := more[of(c)]; n > 0 {
			fields = append(fields, zap.Int("more", n))
		}
		r.log.Log(level, "address conflict", fields...)
	}
}

// reportNode logs what of our Node is new and cannot be used.
func (r *reporter) reportNode(before, now model.Node) {
	known := slices.Concat(before.Problems, before.BadAnnotations)
	for _, p := range slices.Concat(now.Problems, now.BadAnnotations) {
		if !slices.Contains(known, p) {
			r.log.Warn("part of the Node object is not used", zap.String("reason", p))
		}
	}
	if hasNew(before.BadAnnotations, now.BadAnnotations) {
		r.event(func(e EventSink) { e.BadNode(now.BadAnnotations) })
	}
}

// logHost logs which addresses came and went. An address that only moves to another link is not logged: a
// gateway's address of the ptp plug-in is on the link of every pod.
func (r *reporter) logHost(before, now model.Host) {
	if !sameAddresses(before.Links, now.Links) || !slices.Equal(before.NodePorts, now.NodePorts) || !slices.Equal(before.Gateways, now.Gateways) {
		r.log.Info("addresses of this node", zap.Int("count", len(now.Links)),
			zap.Strings("came", missing(now.Links, before.Links)), zap.Strings("went", missing(before.Links, now.Links)),
			zap.Strings("gateways", few(slices.Values(now.Gateways))), zap.Strings("nodePorts", few(slices.Values(now.NodePorts))))
	}
	if !sameAddresses(before.Nodes, now.Nodes) {
		r.log.Debug("addresses of all nodes", zap.Int("count", len(now.Nodes)),
			zap.Strings("came", missing(now.Nodes, before.Nodes)), zap.Strings("went", missing(before.Nodes, now.Nodes)))
	}
}

// logAdopted logs which rows of the kernel are in place already.
func (r *reporter) logAdopted(mode string, tables []dataplane.TableStatus) {
	fields := []zap.Field{zap.String("mode", mode)}
	for _, t := range tables {
		if n := t.Desired - t.Updates; n > 0 {
			fields = append(fields, zap.Int(t.Table, n))
		}
	}
	r.log.Info("kernel read, rows in place adopted", fields...)
}

// writeLines bounds how many lines a second report what was written: a line for each pass would be most
// of the log of a busy node. Metrics count all passes.
const writeLines = 8

// sampled returns a logger that drops the lines of one message beyond writeLines in a second.
func sampled(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Second, writeLines, 0)
	}))
}

// logUpdate logs what a pass wrote.
func (r *reporter) logUpdate(c Cycle) {
	r.writes.Info("kernel updated", zap.Int("services", c.Services), zap.Array("rows", rowCounts(c.Rows)),
		zap.Duration("took", c.Took), zap.Int("pending", c.Pending))
}
