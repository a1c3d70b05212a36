package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// joinName prints namespace/name:port.
func joinName(namespace, name, port string) string {
	if port != "" {
		port = ":" + port
	}
	return namespace + "/" + name + port
}

// comparePlaces orders by address, port, protocol.
func comparePlaces(a, b netip.Addr, pa, pb uint16, qa, qb string) int {
	return cmp.Or(a.Compare(b), cmp.Compare(pa, pb), cmp.Compare(qa, qb))
}

var serviceTones = map[ServiceState]Tone{
	StateServing: Good, StateNoted: Notable, StateSkipped: Notable, StateNoBackends: Bad, StateConflict: Bad,
}

// serviceTone is plain for a Service that nothing is to be served of.
func serviceTone(r ServiceRow) Tone {
	if r.Intended {
		return Plain
	}
	return serviceTones[r.State]
}

// ServiceTable shows Services.
func ServiceTable() Table[ServiceRow] {
	return Table[ServiceRow]{
		column("NAMESPACE", func(r ServiceRow) string { return r.Namespace }),
		column("NAME", func(r ServiceRow) string { return r.Name }),
		column("KINDS", func(r ServiceRow) string { return few(r.Kinds) }),
		column("VIPS", func(r ServiceRow) string { return few(addressTexts(r.VIPs)) }),
		{Name: "PORTS", Text: func(r ServiceRow) string { return few(r.Ports) }, Compare: func(a, b ServiceRow) int { return compareNumbered(few(a.Ports), few(b.Ports)) }},
		number("BACKENDS", func(r ServiceRow) int { return r.Backends }),
		column("SCHEDULER", func(r ServiceRow) string { return few(r.Schedulers) }),
		{Name: "STATE", Text: func(r ServiceRow) string { return string(r.State) }, Tone: serviceTone},
		wide(Column[ServiceRow]{Name: "AFFINITY", Text: func(r ServiceRow) string { return seconds(r.Affinity) }, Compare: by(func(r ServiceRow) float64 { return r.Affinity })}),
		wide(column("POLICY", localText)),
		wide(column("FORWARD", func(r ServiceRow) string { return few(r.Forward) })),
		wide(Column[ServiceRow]{Name: "DRAIN", Text: func(r ServiceRow) string { return seconds(r.Drain) }, Compare: by(func(r ServiceRow) float64 { return r.Drain })}),
		wide(column("SOURCE", func(r ServiceRow) string { return r.Source })),
		wide(column("NOTES", noteText)),
	}
}

func localText(r ServiceRow) string {
	var words []string
	if r.InternalLocal {
		words = append(words, "internal Local")
	}
	if r.ExternalLocal {
		words = append(words, "external Local")
	}
	return strings.Join(words, ", ")
}

// noteText is all that there is to say about a Service.
func noteText(r ServiceRow) string {
	var parts []string
	if r.Reason != "" {
		parts = append(parts, r.Reason)
	}
	if len(r.Lost) > 0 {
		parts = append(parts, "lost to others: "+few(r.Lost))
	}
	parts = append(append(parts, r.Remarks...), r.Notes...)
	for _, bad := range r.BadAnnotations {
		if !slices.Contains(r.Notes, bad) {
			parts = append(parts, bad)
		}
	}
	if len(r.Refused) > 0 {
		parts = append(parts, "not allowed: "+few(addressTexts(r.Refused)))
	}
	if len(r.Unbound) > 0 {
		parts = append(parts, "not bound, because another machine needs it: "+few(addressTexts(r.Unbound)))
	}
	return strings.Join(parts, "; ")
}

func addressTexts(list []netip.Addr) []string {
	out := make([]string, len(list))
	for i, a := range list {
		out[i] = a.String()
	}
	return out
}

// seconds prints a time as people do; nothing for 0.
func seconds(s float64) string {
	if s == 0 {
		return ""
	}
	return shortDuration(time.Duration(s * float64(time.Second)))
}

// FrontendTable shows frontends.
func FrontendTable() Table[FrontendRow] {
	return Table[FrontendRow]{
		{Name: "FRONTEND", Text: func(r FrontendRow) string { return r.Frontend }, Compare: func(a, b FrontendRow) int {
			return comparePlaces(a.Address, b.Address, a.Port, b.Port, a.Protocol, b.Protocol)
		}},
		column("KIND", func(r FrontendRow) string { return r.Kind }),
		column("SERVICE", func(r FrontendRow) string { return joinName(r.Namespace, r.Name, r.PortName) }),
		column("SCHEDULER", func(r FrontendRow) string { return r.Scheduler }),
		{Name: "BACKENDS", Text: func(r FrontendRow) string { return strconv.Itoa(r.Backends) }, Compare: by(func(r FrontendRow) int { return r.Backends }), Tone: func(r FrontendRow) Tone {
			if r.Backends == 0 {
				return Bad
			}
			return Plain
		}},
		column("FLAGS", func(r FrontendRow) string { return strings.Join(r.Flags, ",") }),
		{Name: "WINNER", Text: func(r FrontendRow) string { return r.Winner }, Tone: func(r FrontendRow) Tone {
			if r.Winner != "" {
				return Bad
			}
			return Plain
		}},
		wide(column("WHY", func(r FrontendRow) string { return r.Why })),
		wide(number("KEPT", func(r FrontendRow) int { return r.Kept })),
	}
}

var backendTones = map[BackendState]Tone{BackendServing: Good, BackendClosed: Notable, BackendKept: Notable}

// BackendTable shows backends.
func BackendTable() Table[BackendRow] {
	return Table[BackendRow]{
		{Name: "BACKEND", Text: func(r BackendRow) string { return r.Backend + "/" + r.Protocol }, Compare: func(a, b BackendRow) int {
			return comparePlaces(a.Address, b.Address, a.Port, b.Port, a.Protocol, b.Protocol)
		}},
		column("SERVICE", func(r BackendRow) string { return joinName(r.Namespace, r.Name, r.PortName) }),
		number("FRONTENDS", func(r BackendRow) int { return r.Frontends }),
		number("WEIGHT", func(r BackendRow) uint16 { return r.Weight }),
		{Name: "STATE", Text: func(r BackendRow) string { return string(r.State) }, Tone: func(r BackendRow) Tone { return backendTones[r.State] }},
	}
}

// PendingTable shows what is not in place.
func PendingTable() Table[PendingRow] {
	return Table[PendingRow]{
		column("TABLE", func(r PendingRow) string { return r.Table }),
		column("OP", func(r PendingRow) string { return r.Op }),
		{Name: "STATE", Text: pendingState, Tone: func(r PendingRow) Tone {
			switch {
			case r.Failed:
				return Bad
			case r.Orphan:
				return Notable
			}
			return Plain
		}},
		column("ROW", func(r PendingRow) string { return r.Row }),
	}
}

func pendingState(r PendingRow) string {
	switch {
	case r.Failed && r.Orphan:
		return "failed, orphan"
	case r.Failed:
		return "failed"
	case r.Orphan:
		return "orphan"
	}
	return "waits"
}

// ConflictTable shows frontends that several Services want.
func ConflictTable() Table[ConflictRow] {
	return Table[ConflictRow]{
		column("FRONTEND", func(r ConflictRow) string { return r.Frontend }),
		{Name: "HOLDER", Text: func(r ConflictRow) string { return r.Holder }, Tone: func(ConflictRow) Tone { return Good }},
		{Name: "LOSER", Text: func(r ConflictRow) string { return r.Loser }, Tone: func(ConflictRow) Tone { return Bad }},
		column("WHY", func(r ConflictRow) string { return r.Why }),
	}
}

// HealthTable shows what the health of the agent is judged by.
func HealthTable() Table[HealthRow] {
	return Table[HealthRow]{
		column("CHECK", func(r HealthRow) string { return r.Check }),
		{Name: "STATE", Text: func(r HealthRow) string {
			if r.OK {
				return "ok"
			}
			return "failing"
		}, Tone: func(r HealthRow) Tone {
			if r.OK {
				return Good
			}
			return Bad
		}},
		column("PATHS", func(r HealthRow) string { return strings.Join(r.Paths, ", ") }),
		column("REASON", func(r HealthRow) string { return r.Reason }),
	}
}

// MovingTable shows draining destinations and those in slow start, with times as of now.
func MovingTable(now time.Time) Table[MovingRow] {
	since := func(r MovingRow) string {
		if r.Since == nil {
			return "kept"
		}
		return now.Sub(*r.Since).Round(time.Second).String()
	}
	left := func(r MovingRow) string {
		if r.Until == nil {
			return "no limit"
		}
		return max(r.Until.Sub(now), 0).Round(time.Second).String()
	}
	return Table[MovingRow]{
		column("FRONTEND", func(r MovingRow) string { return r.Frontend }),
		column("BACKEND", func(r MovingRow) string { return r.Backend }),
		column("SERVICE", func(r MovingRow) string { return joinName(r.Namespace, r.Name, r.PortName) }),
		{Name: "STATE", Text: func(r MovingRow) string { return r.State }, Tone: func(MovingRow) Tone { return Notable }},
		{Name: "SINCE", Text: since, Compare: func(a, b MovingRow) int { return compareTimes(b.Since, a.Since) }},
		{Name: "LEFT", Text: left, Compare: func(a, b MovingRow) int { return compareTimes(a.Until, b.Until) }},
		{Name: "WEIGHT", Text: func(r MovingRow) string {
			if r.FullWeight == 0 {
				return strconv.Itoa(int(r.Weight))
			}
			return fmt.Sprintf("%d of %d", r.Weight, r.FullWeight)
		}, Compare: by(func(r MovingRow) uint16 { return r.Weight })},
		column("CONNECTIONS", connectionsOf),
	}
}

// connectionsOf reports how many connections a destination keeps.
func connectionsOf(r MovingRow) string {
	switch {
	case r.State != Draining:
		return ""
	case r.Active == nil || r.Inactive == nil:
		return "not counted yet"
	case *r.Active+*r.Inactive == 0:
		return "none"
	}
	return fmt.Sprintf("%d active, %d inactive", *r.Active, *r.Inactive)
}

// compareTimes orders times; none comes last.
func compareTimes(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}
