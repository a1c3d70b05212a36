package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// Services asks each node how Services fare there.
type Services struct {
	// Target is [namespace/]name, or empty for all; Namespace bounds them.
	Target, Namespace string

	nodes    []string
	services map[serviceKey]*variants
}

type serviceKey struct{ namespace, name string }

// variants are the forms that a Service has on nodes.
type variants struct {
	row         inspect.ServiceRow // on the first node
	local       bool
	least, most int // backends
	states      map[inspect.ServiceState][]string
	shapes      ballot
}

// A ServiceRow is one Service on all nodes.
type ServiceRow struct {
	Namespace  string       `json:"namespace"`
	Name       string       `json:"name"`
	Kinds      []string     `json:"kinds"`
	VIPs       []netip.Addr `json:"vips"`
	Ports      []string     `json:"ports"`
	Schedulers []string     `json:"schedulers"`
	// BackendsMin and BackendsMax are the numbers of backends of the nodes with fewest and with most.
	BackendsMin int `json:"backendsMin"`
	BackendsMax int `json:"backendsMax"`
	// Local reports whether a policy is Local, so that nodes may have different backends.
	Local bool `json:"local"`
	// States has the nodes in each state.
	States []ServiceState `json:"states"`
}

// A ServiceState is a state with the nodes that are in it.
type ServiceState struct {
	State inspect.ServiceState `json:"state"`
	Nodes []string             `json:"nodes"`
}

// Absent is the state of a Service on a node that does not know it.
const Absent inspect.ServiceState = "absent"

func (q *Services) visit(ctx context.Context, ask ask) (func(Node), error) {
	args := []string{"show", "services", "-o", "json"}
	if q.Namespace != "" {
		args = append(args, "--namespace", q.Namespace)
	}
	if q.Target != "" {
		args = append(args, q.Target)
	}
	list, err := decoded[inspect.List[inspect.ServiceRow]](ctx, ask, largeAnswer, args...)
	if err != nil && q.Target != "" && strings.Contains(err.Error(), "is known to this node") {
		list, err = inspect.List[inspect.ServiceRow]{}, nil
	}
	if err != nil {
		return nil, err
	}
	return func(n Node) {
		q.nodes = append(q.nodes, n.Name)
		for i := range list.Items {
			q.add(n.Name, &list.Items[i])
		}
	}, nil
}

func (q *Services) add(node string, row *inspect.ServiceRow) {
	key := serviceKey{row.Namespace, row.Name}
	v := q.services[key]
	if v == nil {
		if q.services == nil {
			q.services = map[serviceKey]*variants{}
		}
		v = &variants{row: *row, least: row.Backends, most: row.Backends, states: map[inspect.ServiceState][]string{}}
		q.services[key] = v
	}
	v.local = v.local || row.InternalLocal || row.ExternalLocal
	v.least, v.most = min(v.least, row.Backends), max(v.most, row.Backends)
	v.states[row.State] = append(v.states[row.State], node)
	v.shapes.add(shape(row), node)
}

// shape is what nodes have to agree on: addresses on which NodePorts answer differ by node.
func shape(r *inspect.ServiceRow) string {
	parts := []string{strings.Join(r.Schedulers, ","), strings.Join(r.Forward, ",")}
	for _, a := range r.VIPs {
		parts = append(parts, a.String())
	}
	return strings.Join(append(parts, r.Ports...), " ")
}

func (q *Services) join(r *Report) {
	r.Verb, r.Asked = "services", q.Target
	slices.SortFunc(q.nodes, compareNames)
	rows := make([]ServiceRow, 0, len(q.services))
	differences := map[string]*difference{}
	keys := slices.SortedFunc(maps.Keys(q.services), func(a, b serviceKey) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	for _, key := range keys {
		v := q.services[key]
		v.complete(q.nodes)
		v.judge(key, differences)
		rows = append(rows, v.rowFor())
	}
	for _, key := range slices.Sorted(maps.Keys(differences)) {
		d := differences[key]
		for _, n := range d.nodes {
			r.find(d.rank, n, "%s %s", d.subject(), d.what)
		}
	}
	if q.Target != "" && len(rows) == 0 {
		for _, n := range q.nodes {
			r.find(rankState, n, "no Service %s is known", q.Target)
		}
	}
	setRows(r, rows, servicesTable())
}

// complete adds the nodes that do not know the Service.
func (v *variants) complete(nodes []string) {
	known := map[string]struct{}{}
	for _, list := range v.states {
		for _, n := range list {
			known[n] = struct{}{}
		}
		slices.SortFunc(list, compareNames)
	}
	for _, n := range nodes {
		if _, there := known[n]; !there {
			v.states[Absent] = append(v.states[Absent], n)
		}
	}
}

// A difference is a sentence about many Services on the same nodes.
type difference struct {
	rank  int
	names []string
	what  string
	nodes []string
}

// subject names the Services, the first of many.
func (d *difference) subject() string {
	const most = 3
	if len(d.names) > most {
		return fmt.Sprintf("%d Services (%s, ...):", len(d.names), strings.Join(d.names[:most], ", "))
	}
	return strings.Join(d.names, ", ") + ":"
}

// judge records how nodes differ. A Service without backends on every node is a fault, too.
func (v *variants) judge(key serviceKey, into map[string]*difference) {
	name := key.namespace + "/" + key.name
	most := v.commonState()
	for state, nodes := range v.states {
		switch {
		case state == most && state != inspect.StateNoBackends && state != inspect.StateConflict:
		case state == most:
			record(into, rankState, name, fmt.Sprintf("%s on %s", state, count(len(nodes), "node")), nodes)
		case v.local && (state == inspect.StateNoBackends || most == inspect.StateNoBackends):
			// with a policy Local a node without an endpoint of its own has no backends
		case state == inspect.StateSkipped && v.row.Intended:
		default:
			record(into, rankState, name, fmt.Sprintf("%s here, %s on %s", state, most, count(len(v.states[most]), "node")), nodes)
		}
	}
	_, have, of := v.shapes.most()
	value, _, _ := v.shapes.most()
	for other, nodes := range v.shapes.nodes {
		if other != value {
			record(into, rankDiffer, name, fmt.Sprintf("other addresses, ports or scheduler than on %d of %d nodes", have, of), nodes)
		}
	}
}

func record(into map[string]*difference, rank int, name, what string, nodes []string) {
	key := fmt.Sprint(rank) + what + strings.Join(nodes, " ")
	if into[key] == nil {
		into[key] = &difference{rank: rank, what: what, nodes: nodes}
	}
	into[key].names = append(into[key].names, name)
}

// commonState returns the state on most nodes.
func (v *variants) commonState() inspect.ServiceState {
	return slices.MaxFunc(slices.Sorted(maps.Keys(v.states)), func(a, b inspect.ServiceState) int {
		return cmp.Compare(len(v.states[a]), len(v.states[b]))
	})
}

func (v *variants) rowFor() ServiceRow {
	row := ServiceRow{
		Namespace: v.row.Namespace, Name: v.row.Name, Kinds: orEmpty(v.row.Kinds), VIPs: orEmpty(v.row.VIPs), Ports: orEmpty(v.row.Ports), Schedulers: orEmpty(v.row.Schedulers),
		BackendsMin: v.least, BackendsMax: v.most, Local: v.local,
	}
	for _, state := range slices.Sorted(maps.Keys(v.states)) {
		row.States = append(row.States, ServiceState{state, v.states[state]})
	}
	slices.SortStableFunc(row.States, func(a, b ServiceState) int { return len(b.Nodes) - len(a.Nodes) })
	return row
}

// orEmpty returns a list that is not nil, because JSON tells them apart.
func orEmpty[E any](list []E) []E {
	if list == nil {
		return []E{}
	}
	return list
}

func servicesTable() inspect.Table[ServiceRow] {
	return inspect.Table[ServiceRow]{
		text("NAMESPACE", func(r ServiceRow) string { return r.Namespace }),
		text("NAME", func(r ServiceRow) string { return r.Name }),
		text("KINDS", func(r ServiceRow) string { return few(r.Kinds) }),
		text("VIPS", func(r ServiceRow) string {
			var all []string
			for _, a := range r.VIPs {
				all = append(all, a.String())
			}
			return few(all)
		}),
		text("PORTS", func(r ServiceRow) string { return few(r.Ports) }),
		text("BACKENDS", func(r ServiceRow) string {
			if r.BackendsMin == r.BackendsMax {
				return fmt.Sprint(r.BackendsMin)
			}
			return fmt.Sprintf("%d-%d", r.BackendsMin, r.BackendsMax)
		}),
		wide("SCHEDULER", func(r ServiceRow) string { return few(r.Schedulers) }),
		text("STATE", stateText),
		wide("ON", func(r ServiceRow) string {
			var parts []string
			for _, s := range r.States[min(1, len(r.States)):] {
				parts = append(parts, fmt.Sprintf("%s: %s", s.State, names(s.Nodes, false)))
			}
			return strings.Join(parts, "; ")
		}),
	}
}

// stateText is the state on all nodes, or how many nodes are in each.
func stateText(r ServiceRow) string {
	if len(r.States) == 1 {
		return string(r.States[0].State)
	}
	var parts []string
	for _, s := range r.States {
		parts = append(parts, fmt.Sprintf("%d %s", len(s.Nodes), s.State))
	}
	return strings.Join(parts, ", ")
}

// few lists the first of many words.
func few(words []string) string {
	const most = 3
	if rest := len(words) - most; rest > 0 {
		return strings.Join(words[:most], ",") + fmt.Sprintf(",+%d", rest)
	}
	return strings.Join(words, ",")
}
