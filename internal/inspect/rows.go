package inspect

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file makes rows of what the loop knows of one Service.

// serviceRows are one row or none.
func serviceRows(k agent.ServiceInfo, f Filter) []ServiceRow {
	if !f.VIP.Everywhere() || !f.Backend.Everywhere() {
		if !slices.ContainsFunc(k.Frontends, func(fe model.Frontend) bool { return f.hasFrontend(&fe) }) {
			return nil
		}
	}
	r := ServiceRow{
		Namespace: k.ID.Namespace, Name: k.ID.Name, Source: string(k.ID.Origin), Reason: k.Skipped, Frontends: len(k.Frontends),
		Kinds: []string{}, VIPs: []netip.Addr{}, Ports: []string{}, Schedulers: []string{},
		Shortfall: Shortfall{
			Intended: k.Intended, Remarks: model.NoteTexts(k.Remarks), Notes: model.NoteTexts(k.Notes), Reasons: k.Notes,
			BadAnnotations: k.BadAnnotations, Unbound: k.Unbound, Refused: k.Refused,
		},
	}
	taking := map[netip.AddrPort]struct{}{}
	for i := range k.Frontends {
		r.add(&k.Frontends[i])
		for _, b := range k.Frontends[i].Backends {
			if b.Weight > 0 {
				taking[b.Addr] = struct{}{}
			}
		}
	}
	for _, c := range k.Lost {
		r.Lost = append(r.Lost, c.Key.String())
	}
	r.Backends = len(taking)
	r.Kinds, r.Ports, r.Schedulers, r.Forward = unique(r.Kinds), uniquePorts(r.Ports), unique(r.Schedulers), unique(r.Forward)
	slices.SortFunc(r.VIPs, netip.Addr.Compare)
	r.VIPs = slices.Compact(r.VIPs)
	r.State = stateOf(k, r.Backends)
	return []ServiceRow{r}
}

// add adds what one frontend tells about its Service.
func (r *ServiceRow) add(f *model.Frontend) {
	if f.Kind == model.KindDetour { // clients cannot reach it directly
		return
	}
	r.Kinds = append(r.Kinds, f.Kind.String())
	if f.Kind != model.KindNodePort {
		r.VIPs = append(r.VIPs, f.Key.Addr)
	}
	r.Ports = append(r.Ports, portText(f.Key))
	if !f.Scheduler.IsZero() {
		r.Schedulers = append(r.Schedulers, f.Scheduler.String())
	}
	r.Affinity = max(r.Affinity, f.Affinity.Seconds())
	r.Drain = max(r.Drain, f.Drain.Seconds())
	r.SlowStart = max(r.SlowStart, f.SlowStart.Seconds())
	if f.Forward != model.ForwardNAT {
		r.Forward = append(r.Forward, f.Forward.String())
	}
	if f.Local {
		r.InternalLocal = r.InternalLocal || !f.Kind.External()
		r.ExternalLocal = r.ExternalLocal || f.Kind.External()
	}
}

func portText(k model.FrontendKey) string {
	return strconv.Itoa(int(k.Port)) + "/" + k.Protocol.String()
}

// stateOf is the state of a Service of which so many backends take new connections.
func stateOf(k agent.ServiceInfo, taking int) ServiceState {
	switch {
	case k.Skipped != "" || len(k.Frontends) == 0:
		return StateSkipped
	case len(k.Lost) > 0:
		return StateConflict
	case taking == 0:
		return StateNoBackends
	case len(k.Notes)+len(k.BadAnnotations)+len(k.Unbound)+len(k.Refused) > 0:
		return StateNoted
	}
	return StateServing
}

func unique(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// uniquePorts is unique in the order of numbers.
func uniquePorts(words []string) []string {
	slices.SortFunc(words, compareNumbered)
	return slices.Compact(words)
}

// compareNumbered orders texts that begin with a number by it.
func compareNumbered(a, b string) int {
	return cmp.Or(cmp.Compare(leading(a), leading(b)), cmp.Compare(a, b))
}

func leading(s string) (n int) {
	for i := 0; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		n = n*10 + int(s[i]-'0')
	}
	return n
}

// frontendRows are those of a Service that are chosen.
func frontendRows(k agent.ServiceInfo, f Filter) []FrontendRow {
	winners := winners(k)
	var out []FrontendRow
	for i := range k.Frontends {
		fe := &k.Frontends[i]
		if !f.hasFrontend(fe) {
			continue
		}
		r := FrontendRow{
			Frontend: fe.Key.String(), Address: fe.Key.Addr, Port: fe.Key.Port, Protocol: fe.Key.Protocol.String(), Kind: fe.Kind.String(),
			Namespace: k.ID.Namespace, Name: k.ID.Name, PortName: fe.PortName, Scheduler: fe.Scheduler.String(),
			Kept: len(fe.Kept), Flags: frontendFlags(fe), Why: whyCaptured(k, fe), Winner: winners[fe.Key],
		}
		for _, b := range fe.Backends {
			if b.Weight > 0 {
				r.Backends++
			}
		}
		out = append(out, r)
	}
	return out
}

// winners are the Services that have what this one lost.
func winners(k agent.ServiceInfo) map[model.FrontendKey]string {
	out := make(map[model.FrontendKey]string, len(k.Lost))
	for _, c := range k.Lost {
		out[c.Key] = c.Winner.String()
	}
	return out
}

// whyCaptured reports why the address of a frontend is captured by port, and nothing where it
// is not.
func whyCaptured(k agent.ServiceInfo, f *model.Frontend) string {
	if !f.Capture {
		return ""
	}
	if holder := k.Holders[f.Key.Addr]; holder != "" {
		return "it is " + holder
	}
	return "--external-binding=capture"
}

// frontendFlags returns the particulars of a frontend, as words.
func frontendFlags(f *model.Frontend) []string {
	var out []string
	for _, flag := range []struct {
		holds bool
		word  string
	}{
		{f.Bind && f.Kind.External(), "bound"},
		{f.Capture, "captured by port"},
		{f.Local, "local"},
		{f.NoLocal, "silent"},
		{f.Affinity > 0, "affinity " + shortDuration(f.Affinity)},
		{f.OnePacket, "one-packet"},
		{f.Forward != model.ForwardNAT, f.Forward.String()},
		{len(f.SourceRanges) > 0, "ranges"},
		{f.Detour.IsValid(), "detour"},
		{f.SlowStart > 0, "slow-start " + shortDuration(f.SlowStart)},
		{f.Limit.Upper > 0, "limit " + strconv.FormatUint(uint64(f.Limit.Upper), 10)},
	} {
		if flag.holds {
			out = append(out, flag.word)
		}
	}
	return out
}

// shortDuration is 3h rather than 3h0m0s.
func shortDuration(d time.Duration) string {
	for _, unit := range []struct {
		d    time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d >= unit.d && d%unit.d == 0 {
			return strconv.FormatInt(int64(d/unit.d), 10) + unit.name
		}
	}
	return d.String()
}

// backendKey is a backend of one port of a Service.
type backendKey struct {
	addr     netip.AddrPort
	protocol model.Protocol
	port     string
}

// backendRows are the backends of a Service that are chosen, each once, sorted. Those of a frontend that another
// Service has get nothing by it.
func backendRows(k agent.ServiceInfo, f Filter) []BackendRow {
	lost := winners(k)
	found := map[backendKey]*BackendRow{}
	for i := range k.Frontends {
		fe := &k.Frontends[i]
		if _, gone := lost[fe.Key]; gone || fe.Kind == model.KindDetour || !f.VIP.Has(fe.Key.Addr, fe.Key.Port) {
			continue
		}
		for _, b := range fe.Backends {
			meet(found, k.ID, fe, b.Addr).serves(b.Weight)
		}
		for _, addr := range fe.Kept {
			meet(found, k.ID, fe, addr)
		}
	}
	out := make([]BackendRow, 0, len(found))
	for key, r := range found {
		if f.Backend.Has(key.addr.Addr(), key.addr.Port()) {
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, func(a, b BackendRow) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.PortName, b.PortName))
	})
	return out
}

// meet counts one more frontend of an endpoint, which is kept unless it turns out to serve.
func meet(found map[backendKey]*BackendRow, id model.ServiceID, fe *model.Frontend, addr netip.AddrPort) *BackendRow {
	key := backendKey{addr, fe.Key.Protocol, fe.PortName}
	r := found[key]
	if r == nil {
		r = &BackendRow{
			Backend: addr.String(), Address: addr.Addr(), Port: addr.Port(), Protocol: fe.Key.Protocol.String(),
			Namespace: id.Namespace, Name: id.Name, PortName: fe.PortName, State: BackendKept,
		}
		found[key] = r
	}
	r.Frontends++
	return r
}

// serves notes that new connections may come by one frontend.
func (r *BackendRow) serves(weight uint16) {
	r.Weight = max(r.Weight, weight)
	switch {
	case r.Weight > 0:
		r.State = BackendServing
	default:
		r.State = BackendClosed
	}
}

// conflictRows are the frontends that a Service has lost.
func conflictRows(k agent.ServiceInfo, f Filter) []ConflictRow {
	var out []ConflictRow
	for _, c := range k.Lost {
		if f.VIP.Has(c.Key.Addr, c.Key.Port) && (f.ofService(c.Loser) || f.ofService(c.Winner)) {
			out = append(out, ConflictRow{Frontend: c.Key.String(), Holder: c.Winner.String(), Loser: c.Loser.String(), Why: why(c)})
		}
	}
	return out
}

// why returns the rule by which the owner has it (dataplane.Frontends).
func why(c dataplane.Conflict) string {
	if c.Kind != 0 {
		return "it is the holder's " + c.Kind.Noun()
	}
	if c.Winner.Origin != c.Loser.Origin {
		return "the holder is older, or as old and comes from " + string(c.Winner.Origin)
	}
	return "the holder is older, or as old and first by name"
}

// pendingRows are those of one table: additions, updates and deletions, each by its text.
func pendingRows(t dataplane.PendingTable) []PendingRow {
	out := make([]PendingRow, len(t.Rows))
	for i, r := range t.Rows {
		out[i] = PendingRow{Table: t.Table, Op: r.Op.String(), Row: r.Text(), Failed: r.Failed, Orphan: r.Orphan}
	}
	slices.SortFunc(out, func(a, b PendingRow) int {
		return cmp.Or(cmp.Compare(opRank[a.Op], opRank[b.Op]), cmp.Compare(a.Row, b.Row))
	})
	return out
}

var opRank = map[string]int{"add": 1, "update": 2, "delete": 3}

// movingRow is a draining destination or one in slow start.
func movingRow(m dataplane.Moving) MovingRow {
	r := MovingRow{
		Frontend: m.Frontend.String(), Backend: m.Backend.String(), Namespace: m.Service.Namespace, Name: m.Service.Name, PortName: m.PortName,
		State: Draining, Since: moment(m.Since), Until: moment(m.Until), Weight: m.Weight, FullWeight: m.Full,
	}
	if m.Climbs {
		r.State = Climbing
		return r
	}
	r.Connections = map[dataplane.ConnectionState]string{
		dataplane.ConnectionsUnknown: "unknown", dataplane.ConnectionsOpen: "open", dataplane.ConnectionsClosed: "closed", dataplane.ConnectionsNone: "none",
	}[m.Connections]
	if m.Connections != dataplane.ConnectionsUnknown {
		r.Active, r.Inactive = &m.Active, &m.Inactive
	}
	return r
}

// moment is nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
