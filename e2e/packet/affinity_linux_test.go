package packet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// ways are all ways to dial a Service: every client and frontend, TCP and UDP, both families.
func (w *world) ways(s service) []*question {
	var out []*question
	for _, c := range []*pod{w.pod2, w.outside, w.host()} {
		for _, frontend := range words[dimFrontend] {
			to, port := s.target(frontend, fabAddr)
			out = append(out, ask(s.name+" "+frontend, c, to, port, outcome{})...)
		}
	}
	return out
}

// loyalty is how often a client asks by one way.
const loyalty = 4

// askAll asks by each way, and fails where right does not hold of the answers.
func (w *world) askAll(t *testing.T, services []service, what string, right func(backends map[string]int) bool) {
	t.Helper()
	table := newTable("Service and frontend", "client", "asked", "answers")
	for _, s := range services {
		for _, q := range w.ways(s) {
			got := q.client.ask(q.proto, q.to, q.port, loyalty)
			table.row(append(q.about, string(q.proto)+" "+hostPort(q.to, q.port), got.Backends)...)
			if got.OK != loyalty || !right(got.Backends) {
				t.Errorf("%v by %s to %s: want %d answers by %s\n%s", q.about, q.proto, hostPort(q.to, q.port), loyalty, what, text(got))
			}
		}
	}
	t.Logf("answers by %s\n%s", what, table)
}

// TestAffinityEverywhere: ClientIP means the same by whichever address a client comes, under whichever policy, and also where
// the clients of this node are taken another way than those outside.
func TestAffinityEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, p := range []*pod{w.pod1, w.pod3, w.remote1} {
		p.serve(t, 8080)
	}
	services := []service{numberedService(1), numberedService(2)}
	for i, name := range []string{"cluster", "local"} {
		services[i].name, services[i].externalLocal, services[i].internalLocal = name, i > 0, i > 0
		services[i].backends, services[i].affinity = endpoints(w.pod1, w.pod3, w.remote1), 600
	}
	n := newAgent(t, w.node, "--detect-local-mode", "NodeCIDR")
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, services...)
	n.start(t)
	w.askAll(t, services, "one backend", func(b map[string]int) bool { return len(b) == 1 })

	for i := range services {
		services[i].backends = endpoints(w.pod3, w.remote1)
		n.edit(t, func() { n.write(t, services[i]) })
	}
	w.askAll(t, services, "one backend that is left", func(b map[string]int) bool { return len(b) == 1 && b[w.pod1.name] == 0 })

	for i := range services {
		services[i].backends, services[i].affinity = endpoints(w.pod1, w.pod3, w.remote1), 0
		n.edit(t, func() { n.write(t, services[i]) })
	}
	w.askAll(t, services, "several backends", func(b map[string]int) bool { return len(b) > 1 })
}

// TestAffinityEnds: when a client has been silent for the time-out it is free. IPVS sends a client to its backend as long as it keeps a
// connection of it, so the test sets a short time-out for UDP.
func TestAffinityEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := numberedService(1)
	for _, p := range []*pod{w.pod1, w.pod3} {
		p.serve(t, 8080)
	}
	web.backends, web.affinity = endpoints(w.pod1, w.pod3), 3
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, web)
	n.start(t)
	w.node.run(t, "ipvsadm", "--set", "0", "0", "1")
	for _, frontend := range words[dimFrontend] {
		to, port := web.target(frontend, fabAddr)
		for _, addr := range to.all() {
			first := w.outside.ask(backend.UDP, addr, port, 4)
			poll(t, "IPVS to forget the client", settleTimeout, func() error {
				if known := w.node.run(t, "cat", "/proc/net/ip_vs_conn"); strings.Count(known, "\n") > 1 {
					return fmt.Errorf("it knows\n%s", known)
				}
				return nil
			})
			second := w.outside.ask(backend.UDP, addr, port, 4)
			if first.OK+second.OK != 8 || len(first.Backends) != 1 || len(second.Backends) != 1 {
				t.Errorf("%s: want one backend at a time\n%s%s", hostPort(addr, port), text(first), text(second))
			}
			if slices.Equal(slices.Collect(maps.Keys(first.Backends)), slices.Collect(maps.Keys(second.Backends))) {
				t.Errorf("%s: the client was held beyond its time\n%s%s", hostPort(addr, port), text(first), text(second))
			}
		}
	}
}
