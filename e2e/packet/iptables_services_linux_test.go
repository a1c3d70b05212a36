package packet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

func TestIPTablesSourceRanges(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) { iptablesWorld(t).sourceRanges(t, inIPTables(kind)...) })
}

func TestIPTablesSourceRangesOfTwoServicesDoNotMix(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) { iptablesWorld(t).rangesDoNotMix(t, inIPTables(kind)...) })
}

func TestIPTablesHealthCheckNodePort(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := iptablesWorld(t)
		w.node.shell(t, strings.ReplaceAll(locked, "-nft", "-"+kind))
		w.healthChecks(t, inIPTables(kind)...)
	})
}

// TestIPTablesAffinity: ClientIP means the same by whichever address a client comes, each client has a backend of its own, and
// whose backend is gone is served by another.
func TestIPTablesAffinity(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := iptablesWorld(t)
		ends := []*pod{w.pod1, w.pod3, w.remote1}
		for _, p := range ends {
			p.serve(t, 8080)
		}
		services := []service{numberedService(1), numberedService(2)}
		for i, name := range []string{"cluster", "local"} {
			services[i].name, services[i].externalLocal, services[i].internalLocal = name, i > 0, i > 0
			services[i].backends, services[i].affinity = endpoints(ends...), 600
		}
		n := newAgent(t, w.node, inIPTables(kind, "--detect-local-mode", "NodeCIDR")...)
		n.writeFile(t, "nodes.yaml", w.nodes())
		n.write(t, services...)
		n.start(t)
		w.askAll(t, services, "one backend", func(b map[string]int) bool { return len(b) == 1 })
		w.clientsSpread(t, services[0])

		for i := range services {
			services[i].backends = endpoints(w.pod3, w.remote1)
			n.edit(t, func() { n.write(t, services[i]) })
		}
		w.askAll(t, services, "one backend that is left", func(b map[string]int) bool { return len(b) == 1 && b[w.pod1.name] == 0 })

		services[0].backends, services[0].affinity = endpoints(w.pod1, w.pod3), 0
		n.edit(t, func() { n.write(t, services[0]) })
		put(t, []any{"without affinity", "client"}, ask("ClusterIP", w.pod2, services[0].vip, 80, by(w.pod1, w.pod3)))
	})
}

// manyClients is so many that all of three backends' choosing the same one would be a miracle.
const manyClients = 24

// clientsSpread requires clients of several addresses to be served by several backends, each by one.
func (w *world) clientsSpread(t *testing.T, s service) {
	t.Helper()
	all := map[string]int{}
	for _, from := range w.pod2.clients(t, 30, manyClients) {
		c := &pod{space: w.pod2.space, name: from.String(), addr: pair{v4: from.String()}}
		got := c.ask(backend.TCP, s.vip.v4, 80, 3)
		if got.OK != 3 || len(got.Backends) != 1 {
			t.Errorf("%s: want three answers by one backend\n%s", c.name, text(got))
		}
		maps.Copy(all, got.Backends)
	}
	t.Logf("%d clients were served by %v", manyClients, slices.Sorted(maps.Keys(all)))
	if len(all) < 2 {
		t.Errorf("%d clients, all of them served by %v", manyClients, all)
	}
}

// TestIPTablesScale has clients that connect all the time while the Service gets and loses
// backends. Exactly the listed backends serve, and no request fails.
func TestIPTablesScale(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := iptablesWorld(t)
		web := numberedService(1)
		ends := []*pod{w.pod1, w.pod2, w.remote1}
		for _, p := range ends {
			p.serve(t, 8080)
		}
		n := newAgent(t, w.node, inIPTables(kind, "--cluster-cidr", clusters)...)
		web.backends = endpoints(ends[0])
		n.write(t, web)
		n.start(t)
		ss := streams{
			w.pod3.stream(t, backend.HTTP, web.vip.v4), w.host().stream(t, backend.TCP, web.vip.v6),
			w.outside.stream(t, backend.TCP, web.external.v4), w.visitor.stream(t, backend.UDP, web.lb.v4),
		}
		for _, count := range []int{1, 2, 3, 1, 3, 2} {
			web.backends = endpoints(ends[:count]...)
			n.writeFile(t, web.name+".yaml", web.manifest())
			n.served(t, kind, web, ends[:count])
			put(t, []any{"backends", "client"}, slices.Concat(
				ask(fmt.Sprint(count), w.pod3, web.vip, 80, by(ends[:count]...)), ask(fmt.Sprint(count), w.outside, fabAddr, web.nodePort, by(ends[:count]...))))
			ss.more(t, 10)
		}
		ss.check(t)
	})
}

// served waits until the rules lead to these backends of a Service, and to no others.
func (n *proxy) served(t *testing.T, kind string, s service, ends []*pod) {
	t.Helper()
	var want []string
	for _, p := range ends {
		for _, port := range s.ports {
			want = append(want, fmt.Sprintf("-p %s %s:%d", strings.ToLower(port.proto), p.addr.v4, port.target))
		}
	}
	slices.Sort(want)
	poll(t, fmt.Sprintf("rules to %d backends", len(ends)), settleTimeout, func() error {
		if got := n.destinations(t, kind); !slices.Equal(got, want) {
			return fmt.Errorf("rules lead to %v, want %v", got, want)
		}
		return nil
	})
	n.quiet(t)
}

// destinations are where rules of IPv4 send connections, by protocol.
func (n *proxy) destinations(t *testing.T, kind string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(n.run(t, "iptables-"+kind+"-save", "-t", "nat")) {
		match, to, found := strings.Cut(strings.TrimSpace(line), " -j DNAT --to-destination ")
		if _, proto, ok := strings.Cut(match, " -p "); found && ok {
			out = append(out, "-p "+strings.Fields(proto)[0]+" "+to)
		}
	}
	slices.Sort(out)
	return out
}

// TestIPTablesUDPGoesWhereItsBackendIs: a client that never pauses and never changes its port is answered by the backend that is
// there. The kernel still has an entry by which its datagrams went elsewhere before.
func TestIPTablesUDPGoesWhereItsBackendIs(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		c := iptablesWorld(t).conversation(t, inIPTables(kind)...)
		c.begin(t)
		c.changes(t)
	})
}
