package packet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// truthWorld is a cluster with a Service for each way to set policies and endpoints, all at once.
type truthWorld struct {
	*cluster
	services map[cell]service // by the cell without client and frontend
}

// newTruthWorld starts both agents on the Services of the table, and on those of the hairpins: their only endpoint is web-a.
func newTruthWorld(t *testing.T) *truthWorld {
	t.Helper()
	w := &truthWorld{newCluster(t, "--detect-local-mode", "NodeCIDR"), map[cell]service{}}
	w.webA.serve(t, 8080)
	w.webB.serve(t, 8080)
	for _, c := range cells() {
		w.add(cell{internal: c[internal], external: c[external], ends: c[ends]})
		w.add(cell{internal: c[internal], external: c[external], ends: self})
	}
	w.start(t, slices.Collect(maps.Values(w.services))...)
	return w
}

// self are the endpoints of a Service whose client is its only endpoint.
const self = "self"

// add makes up a Service with addresses that are nobody else's, outside every range that a node knows.
func (w *truthWorld) add(c cell) {
	if _, known := w.services[c]; known {
		return
	}
	i := len(w.services) + 1
	w.services[c] = service{
		name: strings.ToLower(strings.Join(c[internal:], "-")), ports: webPorts(),
		vip:      pair{fmt.Sprintf("10.96.1.%d", i), fmt.Sprintf("fd00:96::1:%x", i)},
		external: pair{fmt.Sprintf("198.18.1.%d", i), fmt.Sprintf("2001:db8:e::%x", i)},
		lb:       pair{fmt.Sprintf("198.18.2.%d", i), fmt.Sprintf("2001:db8:f::%x", i)},
		nodePort: 30100 + i, internalLocal: c[internal] == "Local", externalLocal: c[external] == "Local",
		backends: w.endpoints(c[ends]),
	}
}

func (w *truthWorld) endpoints(word string) []endpoint {
	out := endpoints(w.backends(word)...)
	for i := range out {
		out[i].terminating = word == "terminating"
	}
	return out
}

// backends are the pods behind a word of the table.
func (w *truthWorld) backends(word string) []*pod {
	return map[string][]*pod{
		"local": {w.webA, w.webB}, "terminating": {w.webA, w.webB}, "remote": {w.webB}, self: {w.webA},
	}[word]
}

// inquiry is one cell asked in one family and protocol, what has to come of it, and what came.
type inquiry struct {
	cell
	family int
	proto  backend.Proto
	want   answer
	got    *backend.Tally
	fault  string // empty when all is as wanted
}

// limits of one inquiry: enough requests to meet each of two endpoints although other inquiries take turns with it.
const (
	fewest = 4
	most   = 24
)

// ask makes the requests of an inquiry, and judges.
func (w *truthWorld) ask(q *inquiry) {
	to, port := w.target(q.cell, q.family)
	limit := patience
	if q.want.outcome == "dropped" {
		limit = silence
	}
	want := w.wantNames(q)
	n := most
	if want == nil {
		n = 1
	}
	q.got = w.client(q.cell).askUntil(limit, q.proto, to, port, n, func(got *backend.Tally) bool {
		return got.Failures() > 0 || got.OK >= fewest && len(got.Backends) >= len(want)
	})
	q.fault = w.judge(q, want)
}

func (w *truthWorld) client(c cell) *pod {
	return map[string]*pod{
		"pod": w.askerA, "pod-elsewhere": w.askerB, "host": w.a.host(), "outside": w.outside, self: w.webA,
	}[c[client]]
}

// target is the address and port of a cell's frontend.
func (w *truthWorld) target(c cell, family int) (addr string, port int) {
	s := w.services[cell{internal: c[internal], external: c[external], ends: c[ends]}]
	if c[frontend] == "NodePort" {
		return fabAddr.of(family), s.nodePort
	}
	return map[string]pair{"ClusterIP": s.vip, "ExternalIP": s.external, "LoadBalancer": s.lb}[c[frontend]].of(family), 80
}

// forwarder is the node whose agent serves the cell.
func (w *truthWorld) forwarder(c cell) *node {
	if c[client] == "pod-elsewhere" && c[frontend] != "NodePort" {
		return w.b
	}
	return w.a
}

// wantNames are the endpoints that have to answer, each of them; nil where nobody may.
func (w *truthWorld) wantNames(q *inquiry) []string {
	if slices.Contains(unanswered, q.want.outcome) {
		return nil
	}
	var out []string
	for _, p := range w.backends(q.cell[ends]) {
		if q.want.outcome == "any" || p.node == w.forwarder(q.cell).name {
			out = append(out, p.name)
		}
	}
	return out
}

// judge compares what came with what was wanted.
func (w *truthWorld) judge(q *inquiry, want []string) string {
	if want == nil {
		return judgeFailure(q)
	}
	if q.got.Failures() > 0 || !slices.Equal(slices.Sorted(maps.Keys(q.got.Backends)), want) {
		return fmt.Sprintf("want answers by %v", want)
	}
	seen := w.sources(q)
	for addr := range q.got.Clients {
		if !slices.Contains(seen, addr.String()) {
			return fmt.Sprintf("the backend saw %s, want one of %v", addr, seen)
		}
	}
	return ""
}

// sources are the addresses that the backends may see.
func (w *truthWorld) sources(q *inquiry) []string {
	addrs := w.forwarder(q.cell).own
	if q.want.source == "own" {
		addrs = []pair{w.client(q.cell).addr}
	}
	var out []string
	for _, addr := range addrs {
		out = append(out, netip.MustParseAddr(addr.of(q.family)).String())
	}
	return out
}

// judgeFailure wants the one request to have failed in the right way.
func judgeFailure(q *inquiry) string {
	kinds := []backend.Failure{map[string]backend.Failure{"refused": backend.Refused, "dropped": backend.Timeout}[q.want.outcome]}
	if q.cell[client] == "host" && q.proto == backend.UDP {
		kinds = append(kinds, backend.Denied)
	}
	for _, kind := range kinds {
		if q.got.Failed[kind] == 1 {
			return ""
		}
	}
	return fmt.Sprintf("want it to be %s", q.want.outcome)
}

// abreast is how many inquiries run at a time; most of the time of one is waiting.
const abreast = 8

// run asks them all and reports each.
func (w *truthWorld) run(t *testing.T, inquiries []*inquiry) {
	t.Helper()
	start := time.Now()
	var running sync.WaitGroup
	free := make(chan struct{}, abreast)
	for _, q := range inquiries {
		free <- struct{}{}
		running.Go(func() {
			w.ask(q)
			<-free
		})
	}
	running.Wait()
	table := newTable("client", "frontend", "iTP", "eTP", "endpoints", "family", "proto", "wanted", "got", "source seen", "")
	held := 0
	for _, q := range inquiries {
		verdict := "ok"
		if q.fault == "" {
			held++
		} else {
			verdict = "NOT OK"
			t.Errorf("%s by %s, IPv%d: %s\n%s", strings.Join(q.cell[:], " "), q.proto, q.family, q.fault, text(q.got))
		}
		c := q.cell
		table.row(c[client], c[frontend], c[internal], c[external], c[ends], q.family, q.proto,
			strings.Trim(q.want.outcome+" "+q.want.source, " -"), outcome(q.got), keys(q.got.Clients, netip.Addr.String), verdict)
	}
	t.Logf("truth\n%s%d cells, %d hold, in %s", table, len(inquiries), held, time.Since(start).Round(time.Second))
}

// outcome prints who answered, or else how requests failed.
func outcome(got *backend.Tally) string {
	return keys(got.Backends, strings.Clone) + keys(got.Failed, func(f backend.Failure) string { return string(f) })
}

// keys prints a map's keys in order.
func keys[K comparable](m map[K]int, name func(K) string) string {
	var out []string
	for k := range m {
		out = append(out, name(k))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// TestTruthTable asks the kernel each cell of testdata/truth.txt. The two tables beside it are about what the file leaves out.
func TestTruthTable(t *testing.T) {
	t.Parallel()
	all := truth(t)
	w := newTruthWorld(t)
	for _, proto := range []backend.Proto{backend.TCP, backend.UDP} {
		for _, family := range families {
			t.Run(fmt.Sprintf("%s IPv%d", proto, family), func(t *testing.T) {
				var inquiries []*inquiry
				for _, c := range cells() {
					inquiries = append(inquiries, &inquiry{cell: c, family: family, proto: proto, want: all[c]})
				}
				w.run(t, inquiries)
			})
		}
	}
	t.Run("sctp", func(t *testing.T) { w.run(t, sctpBasics(all)) })
	t.Run("an endpoint asks itself", func(t *testing.T) { w.run(t, hairpins()) })
}

// sctpBasics are the cells that SCTP is asked: every client and frontend, with policies Cluster and endpoints on both nodes.
func sctpBasics(all map[cell]answer) []*inquiry {
	var out []*inquiry
	for _, c := range cells() {
		for _, family := range families {
			if c[internal] == "Cluster" && c[external] == "Cluster" && c[ends] == "local" {
				out = append(out, &inquiry{cell: c, family: family, proto: backend.SCTP, want: all[c]})
			}
		}
	}
	return out
}

// hairpins: the only endpoint of a Service reaches itself through each frontend under each policy, and never sees its own
// address, or it would answer itself past the node.
func hairpins() []*inquiry {
	var out []*inquiry
	for _, c := range cells() {
		if c[client] != "pod" || c[ends] != "local" {
			continue
		}
		c[client], c[ends] = self, self
		for _, family := range families {
			for _, proto := range protos {
				out = append(out, &inquiry{cell: c, family: family, proto: proto, want: answer{"any", "node"}})
			}
		}
	}
	return out
}
