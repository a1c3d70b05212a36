package cli

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// A Service that answers on the node, and asks for two addresses of nodes.
const exposed = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  externalIPs: [192.0.2.1, 192.0.2.2, 198.51.100.7]
  ports: [{port: 80, nodePort: 30080}]
`

const twoNodes = `
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {addresses: [{type: Hostname, address: node-a}, {type: InternalIP, address: 192.0.2.1}, {type: ExternalIP, address: 203.0.113.1}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-b}
status: {addresses: [{type: InternalIP, address: 192.0.2.2}]}
`

var (
	nodePortServer = regexp.MustCompile(`-A -t (\S+):30080`)
	boundAddress   = regexp.MustCompile(`ip addr add (\S+)/`)
)

func found(re *regexp.Regexp, text string) string {
	var out []string
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return strings.Join(out, " ")
}

func TestPlanKnowsTheHostFromItsNode(t *testing.T) {
	for _, tt := range []struct {
		name         string
		nodes        string
		args         []string
		ports, bound string
		note         string
	}{
		{"its Node", twoNodes, nil, "192.0.2.1 203.0.113.1", "10.96.0.10 198.51.100.7", `192.0.2.2 is not bound on this node: it is an address of node "node-b"`},
		{"the first of its Node", twoNodes, []string{"--nodeport-addresses=primary"}, "192.0.2.1", "10.96.0.10 198.51.100.7", ""},
		{"a range", twoNodes, []string{"--nodeport-addresses=203.0.113.0/24"}, "203.0.113.1", "10.96.0.10 198.51.100.7", ""},
		{"addresses given instead", twoNodes, []string{"--node-address=198.51.100.7,192.0.2.9"}, "192.0.2.9 198.51.100.7", "10.96.0.10", ""},
		{"addresses given, no Node", "", []string{"--node-address=192.0.2.9"}, "192.0.2.9", "10.96.0.10 192.0.2.1 192.0.2.2 198.51.100.7", ""},
		{"nothing known", "", nil, "", "10.96.0.10 192.0.2.1 192.0.2.2 198.51.100.7", "default/web: node ports are not served over IPv4"},
		{"external IPs of a range", twoNodes, []string{"--external-ip-allowed-cidrs=10.0.0.0/8"}, "192.0.2.1 203.0.113.1", "10.96.0.10", "198.51.100.7"},
		{"no external IPs", twoNodes, []string{"--feature-gates=AllowServiceExternalIPs=false"}, "192.0.2.1 203.0.113.1", "10.96.0.10", "external IPs are not served"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := directory(t, map[string]string{"all.yaml": exposed + "---" + tt.nodes})
			out, notes, err := talk(append([]string{"plan", "--source-dir", dir, "--hostname-override", "node-a"}, tt.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			if ports, bound := found(nodePortServer, out), found(boundAddress, out); ports != tt.ports || bound != tt.bound {
				t.Errorf("NodePorts on %q, want %q; bound %q, want %q", ports, tt.ports, bound, tt.bound)
			}
			if !strings.Contains(notes, tt.note) {
				t.Errorf("no %q in the notes:\n%s", tt.note, notes)
			}
		})
	}
}

// Masquerading stays out of the ports that NodePorts have.
func TestPlanKeepsOutOfTheNodePortRange(t *testing.T) {
	dir := directory(t, map[string]string{"web.yaml": exposed})
	for flag, want := range map[string]string{
		"": "--to-ports 32768-65535", "--service-node-port-range=20000-65535": "--to-ports 1024-19999",
	} {
		args := []string{"plan", "--source-dir", dir, "--hostname-override", "node-a", "--show", "rules"}
		if flag != "" {
			args = append(args, flag)
		}
		if out := execute(t, args...); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in\n%s", flag, want, out)
		}
	}
}

// The addresses of a Node are told by the batch, which plan and agent share.
func TestSupposedHost(t *testing.T) {
	c, err := config.Defaults().Check("node-a")
	if err != nil {
		t.Fatal(err)
	}
	own, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	h := supposedHost(c, catalog.Batch{
		Node:  model.Node{Name: "node-a", Addresses: []netip.Addr{own}},
		Nodes: map[netip.Addr]string{own: "node-a", other: "node-b"},
	})
	if h.Links[own] != "node" || len(h.Links) != 1 || !slices.Equal(h.NodePorts, []netip.Addr{own}) || h.Holder(other) == "" {
		t.Errorf("host %+v", h)
	}
}
