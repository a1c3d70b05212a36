package iptables_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// This file has the traffic policies of kube-proxy's iptables mode as tables: for each
// client and policy, in short words, the endpoints that get its packets.

// policyCase is a Service with a NodePort, an external IP and a load balancer.
type policyCase struct {
	internal, external bool     // policy Local
	nodes              []string // where its endpoints are
	want               []string
}

// Parts that many rules of a policyCase share.
var (
	outside = []string{
		"nat KUBE-NODEPORTS: node port -> EXT", "nat KUBE-SERVICES: balancer -> EXT", "nat KUBE-SERVICES: external IP -> EXT",
	}
	refused = []string{
		"filter KUBE-EXTERNAL-SERVICES: balancer -> REJECT", "filter KUBE-EXTERNAL-SERVICES: external IP -> REJECT",
		"filter KUBE-EXTERNAL-SERVICES: node port -> REJECT", "filter KUBE-SERVICES: cluster IP -> REJECT",
	}
	silent = []string{
		"filter KUBE-EXTERNAL-SERVICES: balancer -> DROP", "filter KUBE-EXTERNAL-SERVICES: external IP -> DROP",
		"filter KUBE-EXTERNAL-SERVICES: node port -> DROP",
	}
	here, away, both, empty = []string{"here"}, []string{"far"}, []string{"here", "far"}, []string{}
)

const (
	extCluster = "nat EXT: -> KUBE-MARK-MASQ; -> SVC"
	extLocal   = "nat EXT: pod -> SVC; host -> KUBE-MARK-MASQ; host -> SVC; -> SVL"
	extAway    = "nat EXT: pod -> SVC; host -> KUBE-MARK-MASQ; host -> SVC"
	masquerade = "not pod cluster IP -> KUBE-MARK-MASQ; "
	toCluster  = "nat KUBE-SERVICES: cluster IP -> SVC"
	toLocal    = "nat KUBE-SERVICES: cluster IP -> SVL"
	noneHere   = "filter KUBE-SERVICES: cluster IP -> DROP"
	one, two   = "-> SEP", "some -> SEP; -> SEP"
)

var policyCases = []policyCase{
	{false, false, both, with(outside, toCluster, extCluster, "nat SVC: "+masquerade+two)},
	{false, false, here, with(outside, toCluster, extCluster, "nat SVC: "+masquerade+one)},
	{false, false, away, with(outside, toCluster, extCluster, "nat SVC: "+masquerade+one)},
	{false, false, empty, refused},
	{true, false, both, with(outside, toLocal, extCluster, "nat SVC: "+two, "nat SVL: "+masquerade+one)},
	{true, false, here, with(outside, toLocal, extCluster, "nat SVC: "+one, "nat SVL: "+masquerade+one)},
	{true, false, away, with(outside, noneHere, extCluster, "nat SVC: "+one)},
	{true, false, empty, refused},
	{false, true, both, with(outside, toCluster, extLocal, "nat SVC: "+masquerade+two, "nat SVL: "+one)},
	{false, true, here, with(outside, toCluster, extLocal, "nat SVC: "+masquerade+one, "nat SVL: "+one)},
	{false, true, away, with(slices.Concat(outside, silent), toCluster, extAway, "nat SVC: "+masquerade+one)},
	{false, true, empty, refused},
	{true, true, both, with(outside, toLocal, extLocal, "nat SVC: "+two, "nat SVL: "+masquerade+one)},
	{true, true, here, with(outside, toLocal, extLocal, "nat SVC: "+one, "nat SVL: "+masquerade+one)},
	{true, true, away, with(slices.Concat(outside, silent), noneHere, extAway, "nat SVC: "+one)},
	{true, true, empty, refused},
}

func with(list []string, more ...string) []string { return slices.Concat(list, more) }

func TestTrafficPolicies(t *testing.T) {
	for _, tt := range policyCases {
		for _, how := range []string{"detector", "no detector", "masquerade all"} {
			t.Run(fmt.Sprintf("internal=%t external=%t %v, %s", tt.internal, tt.external, tt.nodes, how), func(t *testing.T) {
				c := config()
				switch how {
				case "no detector":
					c.Local = netfilter.LocalPods{Mode: netfilter.LocalNodeCIDR} // the Node has none
				case "masquerade all":
					c.MasqueradeAll = true
				}
				if diff := cmp.Diff(asTold(tt.want, how), describe(t, clean(t, c, tt.plan()))); diff != "" {
					t.Errorf("rules (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func (c policyCase) plan() model.ServicePlan {
	svc := build.Service("web", build.IPs("10.96.0.1"), build.Port("", 80), nodePort(30080), balancer("203.0.113.1"), externalIPs("203.0.113.9"))
	svc.InternalLocal, svc.ExternalLocal = c.internal, c.external
	slice := build.Slice("web", "a", build.Target("", 8080))
	for i, node := range c.nodes {
		build.Endpoints(build.Ready(fmt.Sprintf("10.244.0.%d", i+1), node))(&slice)
	}
	return compile(svc, slice)
}

// asTold is what a setting makes of the rules with a detector.
func asTold(want []string, how string) []string {
	var out []string
	for _, line := range want {
		chain, rest, _ := strings.Cut(line, ": ")
		parts := strings.Split(rest, "; ")
		switch how {
		case "no detector":
			parts = slices.DeleteFunc(parts, func(p string) bool { return strings.Contains(p, "pod") })
		case "masquerade all":
			parts[0] = strings.TrimPrefix(parts[0], "not pod ")
		}
		out = append(out, chain+": "+strings.Join(parts, "; "))
	}
	slices.Sort(out)
	return out
}

// describe lists the rules of the Service web: a line for each rule of a dispatch
// chain, and one for each chain of its own.
func describe(t *testing.T, k *kernel) []string {
	t.Helper()
	var out []string
	for name, lines := range k.canonical(t) {
		words := strings.Fields(name)
		if words[0] != "ip" || len(words) != 3 {
			continue
		}
		chain, parts := words[1]+" "+shorten(words[2])+": ", []string{}
		for _, rule := range lines {
			if dispatches(rules.ChainKey{Name: words[2]}) && strings.Contains(rule, "default/web") {
				out = append(out, chain+sayRule(rule))
			}
			parts = append(parts, sayRule(rule))
		}
		if slices.Contains([]string{"SVC", "SVL", "EXT"}, shorten(words[2])) {
			out = append(out, chain+strings.Join(parts, "; "))
		}
	}
	slices.Sort(out)
	return out
}

// shorten leaves out what the chains of one port have in common.
func shorten(chain string) string {
	for _, prefix := range []string{"SVC", "SVL", "EXT", "SEP", "FW"} {
		if strings.HasPrefix(chain, "KUBE-"+prefix+"-") {
			return prefix
		}
	}
	return chain
}

// sayRule keeps of a rule who it is about and where it leads.
func sayRule(rule string) string {
	var who []string
	for _, w := range []struct{ match, word string }{
		{"! -s 10.244.0.0/16", "not pod"}, {"--src-type LOCAL", "host"},
		{"-d 10.96.0.1/32", "cluster IP"}, {"-d 203.0.113.1/32", "balancer"}, {"-d 203.0.113.9/32", "external IP"},
		{"--dport 30080", "node port"}, {"--probability", "some"},
	} {
		if strings.Contains(rule, w.match) {
			who = append(who, w.word)
		}
	}
	if strings.HasPrefix(rule, "-s 10.244.0.0/16") {
		who = append(who, "pod")
	}
	return strings.TrimSpace(strings.Join(who, " ") + " -> " + shorten(strings.Join(rules.Targets(rule), "")))
}

// Every way to tell pods gives rules that iptables-save prints back as they are.
func TestDetectors(t *testing.T) {
	const (
		svc = "-p tcp -m comment --comment \"default/web cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ"
		ext = "-m comment --comment \"pod traffic for default/web external destinations\""
	)
	for _, tt := range []struct {
		local          netfilter.LocalPods
		first, shorter string
	}{
		{netfilter.LocalPods{Mode: netfilter.LocalClusterCIDR, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
			"! -s 10.0.0.0/8 -d 10.96.0.1/32 " + svc, "-s 10.0.0.0/8 " + ext},
		{netfilter.LocalPods{Mode: netfilter.LocalBridge, Interface: "cbr0"}, "-d 10.96.0.1/32 ! -i cbr0 " + svc, "-i cbr0 " + ext},
		{netfilter.LocalPods{Mode: netfilter.LocalInterfaceName, Interface: "veth"}, "-d 10.96.0.1/32 ! -i veth+ " + svc, "-i veth+ " + ext},
	} {
		t.Run(string(tt.local.Mode), func(t *testing.T) {
			c := config()
			c.Local = tt.local
			p := policyCase{external: true, nodes: both}.plan()
			k := clean(t, c, p)
			for name, lines := range k.canonical(t) {
				if want := tt.first; strings.Contains(name, "KUBE-SVC-") && lines[0] != want {
					t.Errorf("%s begins with\n%s, want\n%s", name, lines[0], want)
				}
				if want := tt.shorter; strings.Contains(name, "KUBE-EXT-") && !strings.HasPrefix(lines[0], want) {
					t.Errorf("%s begins with\n%s, want\n%s", name, lines[0], want)
				}
			}
			if r := apply(t, start(t, k, c, p)); len(r.Stages) != 0 {
				t.Errorf("a restart wrote %+v", r.Stages)
			}
		})
	}
}

// The range of this node's pods comes with its Node, later than the Services.
func TestDetectorFollowsTheNode(t *testing.T) {
	c := config()
	c.Local = netfilter.LocalPods{Mode: netfilter.LocalNodeCIDR}
	p := policyCase{external: true, nodes: both}.plan()
	k := newKernel()
	m := start(t, k, c, p)
	apply(t, m)
	before := k.String()
	h := host()
	h.Node.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	m.SetHost(h)
	apply(t, m)
	if diff := cmp.Diff(asTold(policyCases[8].want, "detector"), describe(t, k)); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	h.Node.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.245.0.0/16")}
	m.SetHost(h)
	apply(t, m)
	if text := k.String(); strings.Contains(text, "10.244.0.0/16") || !strings.Contains(text, "-s 10.245.0.0/16") {
		t.Errorf("the rules do not follow the range that replaces the first one:\n%s", text)
	}
	m.SetHost(host())
	apply(t, m)
	if diff := cmp.Diff(before, k.String()); diff != "" {
		t.Errorf("the range went (-before +after):\n%s", diff)
	}
}

func TestNodePortAddresses(t *testing.T) {
	const (
		note  = "-m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" "
		to    = "-j KUBE-NODEPORTS"
		own   = "-d 127.0.0.0/8 " + note + "-m addrtype --src-type LOCAL " + to
		all4  = "! -d 127.0.0.0/8 " + note + "-m addrtype --dst-type LOCAL " + to
		all6  = "! -d ::1/128 " + note + "-m addrtype --dst-type LOCAL " + to
		first = "-d 192.168.0.1/32 " + note + to
		other = "-d 192.168.0.2/32 " + note + to
		six   = "-d fd00:192::1/128 " + note + to
		block = "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
	)
	for _, tt := range []struct {
		name                  string
		everywhere, localhost bool
		addrs                 []string
		want4, want6          []string
	}{
		{"everywhere", true, false, []string{"192.168.0.1"}, []string{all4}, []string{all6}},
		{"everywhere and on loopback", true, true, nil, []string{own, all4}, []string{all6}},
		{"on some addresses", false, false, []string{"192.168.0.1", "192.168.0.2", "fd00:192::1"}, []string{first, other}, []string{six}},
		{"on one and on loopback", false, true, []string{"127.0.0.1", "192.168.0.1"}, []string{own, first}, nil},
		{"on loopback alone", false, true, []string{"127.0.0.1", "::1"}, []string{own}, nil},
		{"loopback was not allowed", false, false, []string{"127.0.0.1", "::1", "fd00:192::1"}, nil, []string{six}},
		{"nowhere", false, false, nil, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config()
			c.Everywhere = func(model.Family) bool { return tt.everywhere }
			c.Localhost = tt.localhost
			k := newKernel()
			m := start(t, k, c)
			h := host()
			h.NodePorts = nil
			for _, a := range tt.addrs {
				h.NodePorts = append(h.NodePorts, netip.MustParseAddr(a))
			}
			m.SetHost(h)
			apply(t, m)
			if diff := cmp.Diff(tt.want4, k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES")); diff != "" {
				t.Errorf("IPv4 (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want6, k.chain(t, rules.IPv6, "nat", "KUBE-SERVICES")); diff != "" {
				t.Errorf("IPv6 (-want +got):\n%s", diff)
			}
			guard := []string(nil)
			if tt.localhost {
				guard = []string{block}
			}
			if diff := cmp.Diff(guard, k.chain(t, rules.IPv4, "filter", "KUBE-PROXY-FIREWALL")); diff != "" {
				t.Errorf("guard of loopback (-want +got):\n%s", diff)
			}
			if got := k.chain(t, rules.IPv6, "filter", "KUBE-PROXY-FIREWALL"); got != nil {
				t.Errorf("IPv6 has %v", got)
			}
		})
	}
}

// A backend without weight takes no new connections.
func TestWeightZeroIsNoEndpoint(t *testing.T) {
	p := service("web", "10.96.0.1", "10.244.0.1", "10.244.0.2")
	p.Frontends[0].Backends[0].Weight = 0
	if got := clean(t, config(), p).reaches(t, rules.IPv4, "10.96.0.1"); !slices.Equal(got, []string{"10.244.0.2:8080"}) {
		t.Errorf("leads to %v", got)
	}
}
