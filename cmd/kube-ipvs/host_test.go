package main

import (
	"context"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/healthcheck"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
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

// What makes an agent compile again is what a plan looks at, not more.
func TestWhomAnotherHostConcerns(t *testing.T) {
	s := config.Defaults()
	s.Proxy.NodePortAddresses = []string{"192.0.2.0/24", "2001:db8::/32"}
	c, err := s.Check("node-a")
	if err != nil {
		t.Fatal(err)
	}
	host := func(addrs ...string) model.Host {
		h := model.Host{Links: map[netip.Addr]string{}}
		for _, a := range addrs {
			h.Links[netip.MustParseAddr(a)] = "eth0"
		}
		h.NodePorts = nodePortsFor(fixed(c))(h)
		return h
	}
	plain := model.Service{ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []model.ServicePort{{Port: 80}}}
	open := plain
	open.Ports = []model.ServicePort{{Port: 80, NodePort: 30080}}
	all := model.Families()
	ask := concernsFor(fixed(c), all[:])
	for _, tt := range []struct {
		name        string
		before, now model.Host
		plain, open bool
	}{
		{"the same", host("192.0.2.1"), host("192.0.2.1"), false, false},
		{"an address of NodePorts", host("192.0.2.1"), host("192.0.2.1", "192.0.2.2"), false, true},
		{"an address that was not selected", host("192.0.2.1"), host("192.0.2.1", "198.51.100.1"), false, false},
		{"the Service's own", host(), host("10.96.0.1"), true, true},
		{"a zone", host(), model.Host{Node: model.Node{Zone: "east"}}, true, true},
	} {
		q := ask(tt.before, tt.now)
		if q(&plain, nil) != tt.plain || q(&open, nil) != tt.open {
			t.Errorf("%s: plain %t, open %t, want %t, %t", tt.name, q(&plain, nil), q(&open, nil), tt.plain, tt.open)
		}
	}
}

// Health-check ports are everywhere by one socket, or where NodePorts are.
func TestHealthPortsFollowTheSelection(t *testing.T) {
	for _, tt := range []struct {
		name      string
		selection []string
		addrs     []string
		want      []string
	}{
		{"everywhere", nil, []string{"127.0.0.1"}, []string{"0.0.0.0"}},
		{"selected", []string{"127.0.0.0/8"}, []string{"127.0.0.1"}, []string{"127.0.0.1"}},
		{"selected, none there", []string{"127.0.0.0/8"}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := config.Defaults()
			s.Proxy.NodePortAddresses = tt.selection
			c, err := s.Check("node-a")
			if err != nil {
				t.Fatal(err)
			}
			h := newHealthPorts(zap.NewNop(), fixed(c), healthcheck.Options{})
			var addrs []netip.Addr
			for _, a := range tt.addrs {
				addrs = append(addrs, netip.MustParseAddr(a))
			}
			h.Listen(addrs)
			if got := listening(t, h); !slices.Equal(got, tt.want) {
				t.Errorf("listens on %v, want %v", got, tt.want)
			}
		})
	}
}

// listening runs the ports for a Service and returns where they are opened.
func listening(t *testing.T, h healthPorts) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	h.Set(model.ServiceID{Name: "web"}, model.HealthCheck{Port: port, IPv4: model.LocalEndpoints{Served: true, Ready: 1}})
	var status []healthcheck.PortStatus
	poll.Until(t, "the status of the port", func() bool {
		status = h.Status() // lists a port that no address has open, too
		return len(status) > 0
	})
	var out []string
	for _, s := range status {
		if s.Listening {
			out = append(out, s.Address.Addr().String())
		}
	}
	return out
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
