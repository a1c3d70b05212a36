package packet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// TestSourceOfClusterIPTraffic sends requests through a ClusterIP from everywhere and checks the address that the backend sees.
// Masquerading follows kube-proxy's ipvs mode: clients that are no local pods, or all with --masquerade-all.
func TestSourceOfClusterIPTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	near := service{name: "near", vip: pair{"10.96.0.10", "fd00:96::10"}, ports: webPorts(), backends: endpoints(w.pod1)}
	w.remote1.serve(t, 8080)
	far := service{name: "far", vip: pair{"10.96.0.11", "fd00:96::11"}, ports: webPorts(), backends: endpoints(w.remote1)}

	pods := map[string]bool{"pod-2": true, "visitor": true}
	for _, tt := range []struct {
		name  string
		flags []string
		keep  map[string]bool // clients whose own address the backend sees
	}{
		{"cluster-cidr", []string{"--cluster-cidr", clusters}, pods},
		{"masquerade-all", []string{"--cluster-cidr", clusters, "--masquerade-all"}, nil},
		{"cluster-cidr, routed", append([]string{"--cluster-cidr", clusters}, routed...), pods},
		{"masquerade-all, routed", append([]string{"--cluster-cidr", clusters, "--masquerade-all"}, routed...), nil},
		{"no way to tell pods, routed", routed, map[string]bool{"pod-2": true, "visitor": true, "outside": true}},
		{"no way to tell pods", nil, map[string]bool{"pod-2": true, "visitor": true, "outside": true}},
		{"NodeCIDR", []string{"--detect-local-mode", "NodeCIDR"}, map[string]bool{"pod-2": true}},
		{"BridgeInterface", []string{"--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "cni0"}, map[string]bool{"pod-2": true}},
		{"InterfaceNamePrefix", []string{"--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "cn"}, map[string]bool{"pod-2": true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newAgent(t, w.node, tt.flags...)
			n.writeFile(t, "node.yaml", w.node.manifest())
			n.write(t, near, far)
			n.start(t)
			table := newTable("service", "client", "family", "seen by tcp, udp, sctp")
			for _, family := range families {
				for _, f := range w.flows(near, far, tt.keep, family) {
					f.check(t, family, table, protos...)
				}
			}
			t.Logf("sources\n%s", table)
		})
	}
}

// flow is a client, a Service and the address that the backend has to see.
type flow struct {
	client  *pod
	service service
	want    string
}

// flows lists all pairs. Traffic of the endpoint to itself is masqueraded whatever the policy, or the answer would not come
// back through the node.
func (w *world) flows(near, far service, keep map[string]bool, family int) []flow {
	var out []flow
	for _, s := range []service{near, far} {
		endpoint, masqueraded := w.pod1, cniAddr.of(family)
		if s.name == far.name {
			endpoint, masqueraded = w.remote1, fabAddr.of(family)
		}
		for _, c := range []*pod{w.pod2, w.visitor, w.outside, w.host(), endpoint} {
			if c == w.remote1 {
				continue // the answer would not come by this node: the other node solves its own hairpins
			}
			f := flow{client: c, service: s, want: masqueraded}
			if keep[c.name] {
				f.want = c.addr.of(family)
			}
			out = append(out, f)
		}
	}
	return out
}

// check asks once by each protocol.
func (f flow) check(t *testing.T, family int, table *table, protos ...backend.Proto) {
	t.Helper()
	all := map[netip.Addr]int{}
	for _, proto := range protos {
		got := f.client.ask(proto, f.service.vip.of(family), 80, 1)
		maps.Copy(all, got.Clients)
		if got.Clients[netip.MustParseAddr(f.want)] != 1 {
			t.Errorf("%s from %s by %s, IPv%d: want the backend to see %s\n%s", f.service.name, f.client.name, proto, family, f.want, text(got))
		}
	}
	table.row(f.service.name, f.client.name, family, fmt.Sprint(slices.Collect(maps.Keys(all))))
}

// table collects what was measured, for the log.
type table struct {
	text strings.Builder
	tabs *tabwriter.Writer
}

func newTable(columns ...any) *table {
	t := &table{}
	t.tabs = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	t.row(columns...)
	return t
}

func (t *table) row(cells ...any) {
	fmt.Fprintln(t.tabs, strings.TrimSuffix(fmt.Sprintf(strings.Repeat("%v\t", len(cells)), cells...), "\t"))
}

// String returns the rows so far.
func (t *table) String() string {
	_ = t.tabs.Flush()
	return t.text.String()
}
