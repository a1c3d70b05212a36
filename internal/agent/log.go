package agent

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// rowCounts logs the rows of a cycle, a table each.
type rowCounts []TableRows

// MarshalLogArray implements zapcore.ArrayMarshaler.
func (r rowCounts) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for _, t := range r {
		if err := enc.AppendObject(t); err != nil {
			return err
		}
	}
	return nil
}

// MarshalLogObject implements zapcore.ObjectMarshaler; what is zero is left out.
func (t TableRows) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("table", t.Table)
	for _, c := range []struct {
		name string
		n    int
	}{{"adds", t.Adds}, {"updates", t.Updates}, {"deletes", t.Deletes}, {"failed", t.Failed}} {
		if c.n > 0 {
			enc.AddInt(c.name, c.n)
		}
	}
	return nil
}

// tellAdopted says once what was found in the kernel and goes on serving.
func (a *Agent) tellAdopted() {
	if a.adopted {
		return
	}
	a.adopted = true
	fields := []zap.Field{zap.String("mode", a.mode.Name())}
	for _, t := range a.mode.Tables() {
		if n := t.Desired - t.Updates; n > 0 {
			fields = append(fields, zap.Int(t.Table, n))
		}
	}
	a.log.Info("kernel read, rows in place adopted", fields...)
}

// logOutcome says once what is not served of a Service, and why.
func (a *Agent) logOutcome(id model.ServiceID, before, now *outcome) {
	if now.skipped != "" && now.skipped != before.skipped {
		a.log.Info("service skipped", zap.Stringer("service", id), zap.String("reason", now.skipped))
	}
	for _, n := range slices.Concat(now.notes, now.remarks) {
		// What the guard of node addresses does is told below, with its holder.
		if n.Code != model.VIPConflictsWithNode && !slices.Contains(before.notes, n) && !slices.Contains(before.remarks, n) {
			a.log.Log(noteLevel(n.Code), "service note", zap.Stringer("service", id), zap.String("reason", n.Text), zap.String("code", string(n.Code)))
		}
	}
	a.logUnbound(id, before.unbound, now.unbound)
	a.tellOutcome(id, before, now)
}

// noteLevel keeps back what is true of every Service for a moment: its slices come
// after it.
func noteLevel(code model.NoteCode) zapcore.Level {
	if code == model.NoEndpoints {
		return zap.DebugLevel
	}
	return zap.InfoLevel
}

func (a *Agent) logUnbound(id model.ServiceID, before, now []netip.Addr) {
	for _, addr := range now {
		if !slices.Contains(before, addr) {
			a.log.Warn("address of a service is not bound, only its ports are served", zap.Stringer("service", id), zap.Stringer("address", addr),
				zap.String("reason", string(model.VIPConflictsWithNode)), zap.String("holder", a.host.Holder(addr)))
		}
	}
	for _, addr := range before {
		if !slices.Contains(now, addr) {
			a.log.Info("address of a service is free, no other machine has it any more", zap.Stringer("service", id), zap.Stringer("address", addr),
				zap.String("reason", string(model.VIPConflictsWithNode)))
		}
	}
}

// logNode says what of our Node could not be used.
func (a *Agent) logNode(n model.Node) {
	before := slices.Concat(a.known.Node.Problems, a.known.Node.BadAnnotations)
	for _, p := range slices.Concat(n.Problems, n.BadAnnotations) {
		if !slices.Contains(before, p) {
			a.log.Warn("part of the node not used", zap.String("reason", p))
		}
	}
	if another(a.known.Node.BadAnnotations, n.BadAnnotations) {
		a.herald(func(h EventSink) { h.BadNode(n.BadAnnotations) })
	}
}

// logHost says which addresses came and went. An address that only moves to another link is no news: a gateway's address of
// the ptp plug-in is on the link of every pod.
func (a *Agent) logHost(before, now model.Host) {
	if !sameAddresses(before.Links, now.Links) || !slices.Equal(before.NodePorts, now.NodePorts) || !slices.Equal(before.Gateways, now.Gateways) {
		a.log.Info("addresses of this node", zap.Int("count", len(now.Links)),
			zap.Strings("came", missing(now.Links, before.Links)), zap.Strings("went", missing(before.Links, now.Links)),
			zap.Strings("gateways", few(slices.Values(now.Gateways))), zap.Strings("nodePorts", few(slices.Values(now.NodePorts))))
	}
	if !sameAddresses(before.Nodes, now.Nodes) {
		a.log.Debug("addresses of all nodes", zap.Int("count", len(now.Nodes)),
			zap.Strings("came", missing(now.Nodes, before.Nodes)), zap.Strings("went", missing(before.Nodes, now.Nodes)))
	}
}

func sameAddresses(a, b map[netip.Addr]string) bool {
	for addr := range a {
		if _, is := b[addr]; !is {
			return false
		}
	}
	return len(a) == len(b)
}

// missing lists a few of the addresses that the second map lacks.
func missing(in, from map[netip.Addr]string) []string {
	return few(func(yield func(netip.Addr) bool) {
		for a := range in {
			if _, ok := from[a]; !ok && !yield(a) {
				return
			}
		}
	})
}

// few prints the first addresses of a list and how many there are besides.
func few(list iter.Seq[netip.Addr]) []string {
	const most = 8
	var out []string
	sorted := slices.SortedFunc(list, netip.Addr.Compare)
	for _, a := range sorted[:min(most, len(sorted))] {
		out = append(out, a.String())
	}
	if rest := len(sorted) - most; rest > 0 {
		out = append(out, fmt.Sprintf("and %d more", rest))
	}
	return out
}
