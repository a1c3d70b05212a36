package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// Services asks each node how Services fare there.
type Services struct {
	// Target is [namespace/]name, or empty for all; Namespace bounds them.
	Target, Namespace string

	// groups are nodes with the same answer, byte for byte, as most nodes have: it is decoded once.
	groups   []group
	mu       sync.Mutex
	known    map[[sha256.Size]byte]int // the group of an answer
	services map[serviceKey]*variants
	all      []string // all nodes, sorted, when all have answered
}

// A group is some nodes; variants name it by its index until all are known.
type group struct{ nodes []string }

type serviceKey struct{ namespace, name string }

// variants are the forms that a Service has on nodes.
type variants struct {
	local       bool
	intended    bool                           // it is skipped as it asks to be
	least, most int                            // backends
	states      map[inspect.ServiceState][]int // groups
	forms       map[string]*form
	seen        []int // groups that know it
}

// A form is one state of a Service that several nodes share.
type form struct {
	row    inspect.ServiceRow
	groups []int
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
	out, err := printed(ctx, ask, largeAnswer, args...)
	if err != nil && !unknown(err) {
		return nil, err
	}
	sum := sha256.Sum256(out)
	var list inspect.List[inspect.ServiceRow]
	if len(out) > 0 && !q.has(sum) {
		if list, err = decode[inspect.List[inspect.ServiceRow]](out, args); err != nil {
			return nil, err
		}
	}
	return func(n Node) { q.add(n.Name, sum, list.Items) }, nil
}

// has reports whether an answer is known.
func (q *Services) has(sum [sha256.Size]byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, there := q.known[sum]
	return there
}

// add records the answer of a node.
func (q *Services) add(node string, sum [sha256.Size]byte, rows []inspect.ServiceRow) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, there := q.known[sum]; there {
		q.groups[i].nodes = append(q.groups[i].nodes, node)
		return
	}
	if q.known == nil {
		q.known, q.services = map[[sha256.Size]byte]int{}, map[serviceKey]*variants{}
	}
	i := len(q.groups)
	q.known[sum] = i
	q.groups = append(q.groups, group{nodes: []string{node}})
	for r := range rows {
		q.addRow(i, &rows[r])
	}
}

func (q *Services) addRow(group int, row *inspect.ServiceRow) {
	key := serviceKey{row.Namespace, row.Name}
	v := q.services[key]
	if v == nil {
		v = &variants{least: row.Backends, most: row.Backends, states: map[inspect.ServiceState][]int{}, forms: map[string]*form{}}
		q.services[key] = v
	}
	v.intended = v.intended || row.Intended
	v.local = v.local || row.InternalLocal || row.ExternalLocal
	v.least, v.most = min(v.least, row.Backends), max(v.most, row.Backends)
	if len(v.seen) > 0 && v.seen[len(v.seen)-1] == group {
		return // a list names each Service once
	}
	v.seen = append(v.seen, group)
	v.states[row.State] = append(v.states[row.State], group)
	like := shape(row)
	if v.forms[like] == nil {
		v.forms[like] = &form{row: *row}
	}
	v.forms[like].groups = append(v.forms[like].groups, group)
}

// members returns the nodes of some groups, sorted.
func (q *Services) members(groups []int) []string {
	if len(groups) == len(q.groups) {
		return q.all
	}
	var out []string
	for _, i := range groups {
		out = append(out, q.groups[i].nodes...)
	}
	slices.SortFunc(out, compareNames)
	return out
}

// shape has the properties in which nodes must agree: addresses that serve NodePorts differ by
// node.
func shape(r *inspect.ServiceRow) string {
	parts := []string{strings.Join(r.Schedulers, ","), strings.Join(r.Forward, ",")}
	for _, a := range r.VIPs {
		parts = append(parts, a.String())
	}
	return strings.Join(append(parts, r.Ports...), " ")
}

func (q *Services) join(r *Report) {
	r.Verb, r.Asked = "services", q.Target
	every := make([]int, len(q.groups))
	for i := range q.groups {
		every[i] = i
		q.all = append(q.all, q.groups[i].nodes...)
	}
	slices.SortFunc(q.all, compareNames)
	rows := make([]ServiceRow, 0, len(q.services))
	differences := map[string]*difference{}
	keys := slices.SortedFunc(maps.Keys(q.services), func(a, b serviceKey) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	for _, key := range keys {
		v := q.services[key]
		v.complete(every)
		states := map[inspect.ServiceState][]string{}
		for state, groups := range v.states {
			states[state] = q.members(groups)
		}
		var forms ballot
		for like, f := range v.forms {
			forms.put(like, q.members(f.groups))
		}
		common, _, _ := forms.most()
		v.judge(key, states, &forms, differences)
		rows = append(rows, v.rowFor(v.forms[common].row, states))
	}
	for _, key := range slices.Sorted(maps.Keys(differences)) {
		d := differences[key]
		for _, n := range d.nodes {
			r.find(d.rank, n, "%s %s", d.subject(), d.what)
		}
	}
	if q.Target != "" && len(rows) == 0 {
		for _, n := range q.all {
			r.find(rankState, n, "no Service %s is known", q.Target)
		}
	}
	setRows(r, rows, servicesTable())
}

// complete adds the groups that do not know the Service.
func (v *variants) complete(every []int) {
	for _, i := range every {
		if !slices.Contains(v.seen, i) {
			v.states[Absent] = append(v.states[Absent], i)
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
func (v *variants) judge(key serviceKey, states map[inspect.ServiceState][]string, forms *ballot, into map[string]*difference) {
	name := key.namespace + "/" + key.name
	most := commonState(states)
	for state, nodes := range states {
		switch {
		case state == most && state != inspect.StateNoBackends && state != inspect.StateConflict:
		case state == most:
			record(into, rankWorthy, name, fmt.Sprintf("%s on %s", state, count(len(nodes), "node")), nodes)
		case v.local && (state == inspect.StateNoBackends || most == inspect.StateNoBackends):
			// with a policy Local a node without an endpoint of its own has no backends
		case state == inspect.StateSkipped && v.intended:
		default:
			record(into, rankState, name, fmt.Sprintf("%s here, %s on %s", state, most, count(len(states[most]), "node")), nodes)
		}
	}
	common, have, of := forms.most()
	for form, nodes := range forms.nodes {
		if form != common {
			record(into, rankDiffer, name, fmt.Sprintf("other addresses, ports or scheduler than on %d of %d nodes", have, of), nodes)
		}
	}
}

func record(into map[string]*difference, rank int, name, what string, nodes []string) {
	key := fmt.Sprint(rank, what, " ") + strings.Join(nodes, " ")
	if into[key] == nil {
		into[key] = &difference{rank: rank, what: what, nodes: nodes}
	}
	into[key].names = append(into[key].names, name)
}

// commonState returns the state on most nodes.
func commonState(states map[inspect.ServiceState][]string) inspect.ServiceState {
	return slices.MaxFunc(slices.Sorted(maps.Keys(states)), func(a, b inspect.ServiceState) int {
		return cmp.Compare(len(states[a]), len(states[b]))
	})
}

// rowFor returns the row of the table: the Service as it is on most nodes.
func (v *variants) rowFor(is inspect.ServiceRow, states map[inspect.ServiceState][]string) ServiceRow {
	row := ServiceRow{
		Namespace: is.Namespace, Name: is.Name, Kinds: orEmpty(is.Kinds), VIPs: orEmpty(is.VIPs), Ports: orEmpty(is.Ports), Schedulers: orEmpty(is.Schedulers),
		BackendsMin: v.least, BackendsMax: v.most, Local: v.local,
	}
	for _, state := range slices.Sorted(maps.Keys(states)) {
		row.States = append(row.States, ServiceState{state, states[state]})
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
