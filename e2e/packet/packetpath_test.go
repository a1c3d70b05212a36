package packet

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// The nodes of the walks, and the backend of each.
var (
	walkPods  = map[string]string{"node-a": "10.244.0.0/24", "node-b": "10.244.1.0/24"}
	walkPod   = map[string]string{"node-a": "10.244.0.1", "node-b": "10.244.1.1"}
	walkNodes = map[string]string{"node-a": "192.168.0.1", "node-b": "192.168.0.2"}
)

// TestPathsAgreeWithTheTruth: the path that explain prints for a packet is the one that it takes in the kernel. Each cell of the
// truth tables is compared.
func TestPathsAgreeWithTheTruth(t *testing.T) {
	byNode := netfilter.LocalPods{Mode: netfilter.LocalNodeCIDR}
	for _, tt := range []struct {
		name   string
		all    map[cell]answer
		walker func(node string) dataplane.Inspectable
		rules  bool
	}{
		{"ipvs", truth(t, truthFile), walkIPVS(ipvs.Config{Local: byNode}), false},
		{"ipvs, masquerade all", truth(t, masqueradeAllFile), walkIPVS(ipvs.Config{Local: byNode, MasqueradeAll: true}), false},
		{"ipvs, no detector", truth(t, noDetectorFile), walkIPVS(ipvs.Config{}), false},
		{"iptables", truthOfIPTables(t, truthFile), walkRules(iptables.Config{Local: byNode}), true},
		{"iptables, masquerade all", truthOfIPTables(t, masqueradeAllFile), walkRules(iptables.Config{Local: byNode, MasqueradeAll: true}), true},
		{"iptables, no detector", truthOfIPTables(t, noDetectorFile), walkRules(iptables.Config{}), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, c := range cells() {
				if got := walkOf(t, c, tt.walker, tt.rules); !agrees(c, got, tt.all[c], tt.rules) {
					t.Errorf("%v: the truth is %v, and the walk %s, source kept %t:\n%s", c, tt.all[c], got.End, got.SourceKept, strings.Join(got.Steps, "\n"))
				}
			}
		})
	}
}

func walkIPVS(c ipvs.Config) func(string) dataplane.Inspectable {
	return func(node string) dataplane.Inspectable {
		c.Node, c.Families = node, []model.Family{model.IPv4}
		return ipvs.New(zap.NewNop(), c, ipvs.Deps{})
	}
}

func walkRules(c iptables.Config) func(string) dataplane.Inspectable {
	return func(string) dataplane.Inspectable {
		c.Families = []model.Family{model.IPv4}
		return iptables.New(zap.NewNop(), c, iptables.Deps{})
	}
}

// forwarderOf is the node that forwards the packet of a cell, and where that comes from as it sees it.
func forwarderOf(c cell) (node string, from dataplane.Origin) {
	switch {
	case c[dimClient] == "pod":
		return "node-a", dataplane.FromPod
	case c[dimClient] == "host":
		return "node-a", dataplane.FromHost
	case c[dimClient] == "pod-elsewhere" && c[dimFrontend] != "NodePort":
		return "node-b", dataplane.FromPod
	}
	return "node-a", dataplane.FromOutside
}

// walkOf compiles the Service of a cell for the node that forwards, and walks.
func walkOf(t *testing.T, c cell, mode func(string) dataplane.Inspectable, rules bool) dataplane.PacketPath {
	t.Helper()
	on, from := forwarderOf(c)
	node := model.Node{Name: on, PodCIDRs: []netip.Prefix{netip.MustParsePrefix(walkPods[on])}}
	host := model.Host{Node: node, NodePorts: []netip.Addr{netip.MustParseAddr(walkNodes[on])}}
	svc := build.Service("web", build.IPs("10.96.0.1"), build.Port("", 80))
	svc.Type, svc.Ports[0].NodePort = "LoadBalancer", 30080
	svc.InternalLocal, svc.ExternalLocal = c[dimInternal] == "Local", c[dimExternal] == "Local"
	svc.ExternalIPs = []netip.Addr{netip.MustParseAddr("198.18.1.1")}
	svc.Ingress = []model.Ingress{{Addr: netip.MustParseAddr("198.18.2.1")}}
	compiled := plan.New(plan.Options{Node: on, IPv4: true, Host: host, NoBinding: rules, NoPolicy: rules}).Compile(svc.ID, svc, walkSlices(c))
	p := dataplane.Packet{Origin: from, Node: node}
	for i := range compiled.Frontends {
		if compiled.Frontends[i].Kind.String() == c[dimFrontend] {
			p.To = compiled.Frontends[i]
		}
	}
	for i, f := range compiled.Frontends {
		if p.To.Detour.IsValid() && netip.AddrPortFrom(f.Key.Addr, f.Key.Port) == p.To.Detour {
			p.Detour = &compiled.Frontends[i]
		}
	}
	return mode(on).PacketPath(p)
}

func walkSlices(c cell) []model.Slice {
	ready := func(node string) model.Endpoint { return build.Ready(walkPod[node], node) }
	leaving := func(node string) model.Endpoint { return build.Leaving(walkPod[node], node) }
	ends := map[string][]model.Endpoint{
		"local": {ready("node-a"), ready("node-b")}, "remote": {ready("node-b")}, "terminating": {leaving("node-a"), leaving("node-b")},
	}[c[dimEnds]]
	return []model.Slice{build.Slice("web", "web-1", build.Target("", 8080), build.Endpoints(ends...))}
}

// agrees holds a walk against the truth: its end, the backends that it names, and whether they see the client. Under rules alone
// the host's own address is the node's.
func agrees(c cell, w dataplane.PacketPath, says answer, rules bool) bool {
	if slices.Contains(unanswered, says.outcome) {
		return string(w.End) == says.outcome
	}
	on, _ := forwarderOf(c)
	named := strings.Join(w.Steps, "\n")
	for node, pod := range walkPod {
		has := c[dimEnds] != "remote" || node == "node-b"
		if want := has && (says.outcome == "any" || node == on); strings.Contains(named, pod+":8080") != want {
			return false
		}
	}
	return w.End == dataplane.EndForwarded && (rules && c[dimClient] == "host" || w.SourceKept == (says.source == "own"))
}
