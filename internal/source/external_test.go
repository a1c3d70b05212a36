package source_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// showExternal prints what a Service has beyond its cluster IPs.
func showExternal(s model.Service) (out []string) {
	if s.ExternalLocal {
		out = append(out, "external local")
	}
	if len(s.ExternalIPs) > 0 {
		out = append(out, fmt.Sprintf("external ips %v", s.ExternalIPs))
	}
	for _, i := range s.Ingress {
		line := "ingress " + i.Addr.String()
		if i.Proxy {
			line += " by proxy"
		}
		out = append(out, line)
	}
	if len(s.SourceRanges) > 0 {
		out = append(out, fmt.Sprintf("ranges %v", s.SourceRanges))
	}
	if s.HealthCheckNodePort != 0 {
		out = append(out, fmt.Sprintf("health check %d", s.HealthCheckNodePort))
	}
	return out
}

// The first line of each type's Service.
const (
	clusterHead  = "file default/web ClusterIP"
	nodePortHead = "file default/web NodePort"
	balancerHead = "file default/web LoadBalancer"
	nameHead     = "file default/web ExternalName"
)

type externalTest struct{ name, body, want string }

func (tt externalTest) check(t *testing.T) {
	in := read[corev1.Service](t, "metadata: {name: web}\n"+tt.body)
	if diff := cmp.Diff(tt.want, showService(source.Service(model.FromFile, in))); diff != "" {
		t.Errorf("service (-want +got):\n%s", diff)
	}
}

func TestNodePorts(t *testing.T) {
	const port80 = `port "" 80/tcp`
	for _, tt := range []externalTest{
		{"type NodePort", "spec: {type: NodePort, ports: [{port: 80, nodePort: 30080}]}", lines(nodePortHead, port80+" node port 30080")},
		{"type LoadBalancer", "spec: {type: LoadBalancer, ports: [{port: 80, nodePort: 30080}]}", lines(balancerHead, port80+" node port 30080")},
		{"outside the usual range", "spec: {type: NodePort, ports: [{port: 80, nodePort: 65535}]}", lines(nodePortHead, port80+" node port 65535")},
		{"LoadBalancer without", "spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}", lines(balancerHead, port80)},
		{"NodePort without", "spec: {type: NodePort, ports: [{port: 80}]}",
			lines(nodePortHead, port80, "problem spec.ports[0].nodePort: missing, and no API server is there to allocate one")},
		{"type ClusterIP", "spec: {ports: [{port: 80, nodePort: 30080}]}",
			lines(clusterHead, port80, "problem spec.ports[0].nodePort: 30080 is not used: the type is ClusterIP")},
		{"type ExternalName", "spec: {type: ExternalName, externalName: a.b, ports: [{port: 80, nodePort: 30080}]}",
			lines(nameHead, port80, "problem spec.ports[0].nodePort: 30080 is not used: the type is ExternalName")},
		{"too big", "spec: {type: NodePort, ports: [{port: 80, nodePort: 65536}]}",
			lines(nodePortHead, port80, "problem spec.ports[0].nodePort: 65536 is not a port (1-65535)")},
		{"negative", "spec: {type: LoadBalancer, ports: [{port: 80, nodePort: -1}]}",
			lines(balancerHead, port80, "problem spec.ports[0].nodePort: -1 is not a port (1-65535)")},
		{"one number for two protocols", "spec: {type: NodePort, ports: [{name: a, port: 53, nodePort: 30053}, {name: b, port: 53, protocol: UDP, nodePort: 30053}]}",
			lines(nodePortHead, `port "a" 53/tcp node port 30053`, `port "b" 53/udp node port 30053`)},
		{"one number for two ports", "spec: {type: NodePort, ports: [{name: a, port: 80, nodePort: 30080}, {name: b, port: 81, nodePort: 30080}]}",
			lines(nodePortHead, `port "a" 80/tcp node port 30080`, `port "b" 81/tcp`, "problem spec.ports[1].nodePort: 30080/tcp is there already")},
		{"number of a port that is not used", "spec: {type: NodePort, ports: [{name: a, port: 0, nodePort: 30080}, {name: b, port: 81, nodePort: 30080}]}",
			lines(nodePortHead, `port "b" 81/tcp node port 30080`, "problem spec.ports[0].port: 0 is not a port (1-65535)")},
	} {
		t.Run(tt.name, tt.check)
	}
}

func TestExternalTrafficPolicy(t *testing.T) {
	for _, tt := range []externalTest{
		{"LoadBalancer", "spec: {type: LoadBalancer, externalTrafficPolicy: Local}", lines(balancerHead, "external local")},
		{"NodePort", "spec: {type: NodePort, externalTrafficPolicy: Local}", lines(nodePortHead, "external local")},
		{"ClusterIP with an external IP", "spec: {externalTrafficPolicy: Local, externalIPs: [1.2.3.4]}",
			lines(clusterHead, "external local", "external ips [1.2.3.4]")},
		{"ClusterIP without", "spec: {externalTrafficPolicy: Local}", lines(clusterHead)},
		{"ExternalName", "spec: {type: ExternalName, externalTrafficPolicy: Local}", lines(nameHead)},
		{"Cluster", "spec: {type: LoadBalancer, externalTrafficPolicy: Cluster}", lines(balancerHead)},
		{"independent of the internal one", "spec: {type: LoadBalancer, internalTrafficPolicy: Local}", lines(balancerHead, "internal local")},
		{"unknown", "spec: {type: LoadBalancer, externalTrafficPolicy: local}",
			lines(balancerHead, `problem spec.externalTrafficPolicy: "local" is not Cluster or Local, taken as Cluster`)},
	} {
		t.Run(tt.name, tt.check)
	}
}

// badAddresses are what no Service may answer on, and the reason that is given.
var badAddresses = map[string]string{
	"ten":                "is not an IP address",
	"":                   "is not an IP address",
	"1.2.3":              "is not an IP address",
	"1.2.3.0256":         "is not an IP address",
	"1.2.3.4/32":         "is not an IP address",
	" 1.2.3.4":           "is not an IP address",
	"fd00::1%eth0":       "has a zone",
	"::ffff:127.0.0.1":   "is a loopback address",
	"0.0.0.0":            "is the unspecified address",
	"::":                 "is the unspecified address",
	"127.0.0.1":          "is a loopback address",
	"0127.0.0.1":         "is a loopback address",
	"::1":                "is a loopback address",
	"169.254.1.1":        "is a link-local address",
	"fe80::1":            "is a link-local address",
	"224.0.0.1":          "is a multicast address",
	"ff02::1":            "is a multicast address",
	"255.255.255.255":    "is the broadcast address",
	"0255.255.0255.0255": "is the broadcast address",
}

// TestBadAddresses: an address that must not be ours is left out of every field,
// and what stands beside it works.
func TestBadAddresses(t *testing.T) {
	for bad, why := range badAddresses {
		t.Run(bad, func(t *testing.T) {
			in := &corev1.Service{}
			in.Name = "web"
			in.Spec.Type = corev1.ServiceTypeLoadBalancer
			in.Spec.ExternalIPs = []string{bad, "1.2.3.5"}
			in.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: bad}, {IP: "1.2.3.6"}}
			want := lines(balancerHead, "external ips [1.2.3.5]", "ingress 1.2.3.6",
				fmt.Sprintf("problem spec.externalIPs[0]: %q %s", bad, why))
			if bad != "" { // An entry without an address has a host name.
				want += fmt.Sprintf("problem status.loadBalancer.ingress[0].ip: %q %s\n", bad, why)
			}
			if diff := cmp.Diff(want, showService(source.Service(model.FromFile, in))); diff != "" {
				t.Errorf("service (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExternalIPs(t *testing.T) {
	for _, tt := range []externalTest{
		{"both families, in their order", "spec: {externalIPs: ['fd00::1', 1.2.3.4]}", lines(clusterHead, "external ips [fd00::1 1.2.3.4]")},
		{"leading zeros", "spec: {externalIPs: [001.02.3.4]}",
			lines(clusterHead, "external ips [1.2.3.4]", `problem spec.externalIPs[0]: "001.02.3.4" has leading zeros, read as 1.2.3.4`)},
		{"mapped counts as IPv4", "spec: {externalIPs: ['::ffff:1.2.3.4', 1.2.3.4]}",
			lines(clusterHead, "external ips [1.2.3.4]", "problem spec.externalIPs[1]: 1.2.3.4 is there already")},
		{"twice", "spec: {externalIPs: [1.2.3.4, 1.2.3.4, 1.2.3.5]}",
			lines(clusterHead, "external ips [1.2.3.4 1.2.3.5]", "problem spec.externalIPs[1]: 1.2.3.4 is there already")},
		{"twice in another spelling", "spec: {externalIPs: ['fd00::1', 'FD00:0::1']}",
			lines(clusterHead, "external ips [fd00::1]", "problem spec.externalIPs[1]: fd00::1 is there already")},
		{"any type", "spec: {type: NodePort, externalIPs: [1.2.3.4]}", lines(nodePortHead, "external ips [1.2.3.4]")},
	} {
		t.Run(tt.name, tt.check)
	}
}

func TestIngress(t *testing.T) {
	balancer := func(ingress string) string {
		return "spec: {type: LoadBalancer}\nstatus: {loadBalancer: {ingress: " + ingress + "}}"
	}
	for _, tt := range []externalTest{
		{"addresses in their order", balancer("[{ip: 'fd00::1'}, {ip: 1.2.3.4}]"), lines(balancerHead, "ingress fd00::1", "ingress 1.2.3.4")},
		{"mode VIP", balancer("[{ip: 1.2.3.4, ipMode: VIP}]"), lines(balancerHead, "ingress 1.2.3.4")},
		{"mode Proxy", balancer("[{ip: 1.2.3.4, ipMode: Proxy}]"), lines(balancerHead, "ingress 1.2.3.4 by proxy")},
		{"mode empty", balancer("[{ip: 1.2.3.4, ipMode: ''}]"), lines(balancerHead, "ingress 1.2.3.4")},
		{"mode unknown", balancer("[{ip: 1.2.3.4, ipMode: Tunnel}, {ip: 1.2.3.5}]"), lines(balancerHead, "ingress 1.2.3.5",
			`problem status.loadBalancer.ingress[0].ipMode: "Tunnel" is not VIP or Proxy: the address is not used`)},
		{"host name", balancer("[{hostname: a.example.org}, {ip: 1.2.3.4}]"), lines(balancerHead, "ingress 1.2.3.4")},
		{"host name and address", balancer("[{hostname: a.example.org, ip: 1.2.3.4}]"), lines(balancerHead, "ingress 1.2.3.4")},
		{"empty entry", balancer("[{}]"), lines(balancerHead)},
		{"leading zeros", balancer("[{ip: 001.2.3.4}]"), lines(balancerHead, "ingress 1.2.3.4",
			`problem status.loadBalancer.ingress[0].ip: "001.2.3.4" has leading zeros, read as 1.2.3.4`)},
		{"twice", balancer("[{ip: 1.2.3.4}, {ip: 1.2.3.4}]"), lines(balancerHead, "ingress 1.2.3.4",
			"problem status.loadBalancer.ingress[1].ip: 1.2.3.4 is there already")},
		{"as VIP, then as Proxy", balancer("[{ip: 1.2.3.4, ipMode: VIP}, {ip: 1.2.3.4, ipMode: Proxy}]"), lines(balancerHead, "ingress 1.2.3.4",
			"problem status.loadBalancer.ingress[1].ip: 1.2.3.4 is there already")},
		{"as Proxy, then as VIP", balancer("[{ip: 1.2.3.4, ipMode: Proxy}, {ip: 1.2.3.4}]"), lines(balancerHead, "ingress 1.2.3.4 by proxy",
			"problem status.loadBalancer.ingress[1].ip: 1.2.3.4 is there already")},
		{"type NodePort", "spec: {type: NodePort}\nstatus: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}}", lines(nodePortHead)},
		{"type ClusterIP", "status: {loadBalancer: {ingress: [{ip: 1.2.3.4}, {ip: bad}]}}", lines(clusterHead)},
	} {
		t.Run(tt.name, tt.check)
	}
}

func TestHealthCheckNodePort(t *testing.T) {
	for _, tt := range []externalTest{
		{"LoadBalancer and Local", "spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 32000}",
			lines(balancerHead, "external local", "health check 32000")},
		{"none", "spec: {type: LoadBalancer, externalTrafficPolicy: Local}", lines(balancerHead, "external local")},
		{"policy Cluster", "spec: {type: LoadBalancer, healthCheckNodePort: 32000}", lines(balancerHead)},
		{"type NodePort", "spec: {type: NodePort, externalTrafficPolicy: Local, healthCheckNodePort: 32000}", lines(nodePortHead, "external local")},
		{"out of range where it does not count", "spec: {type: LoadBalancer, healthCheckNodePort: 70000}", lines(balancerHead)},
		{"too big", "spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 65536}",
			lines(balancerHead, "external local", "problem spec.healthCheckNodePort: 65536 is not a port (1-65535)")},
		{"negative", "spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: -1}",
			lines(balancerHead, "external local", "problem spec.healthCheckNodePort: -1 is not a port (1-65535)")},
	} {
		t.Run(tt.name, tt.check)
	}
}

// TestExternalPartsOfABadName: an object that is not used offers nothing at all.
func TestExternalPartsOfABadName(t *testing.T) {
	in := read[corev1.Service](t, `
metadata: {name: -web}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, externalIPs: [1.2.3.4], healthCheckNodePort: 32000, loadBalancerSourceRanges: [10.0.0.0/8]}
status: {loadBalancer: {ingress: [{ip: 1.2.3.5}]}}`)
	got := source.Service(model.FromFile, in)
	if parts := showExternal(got); len(parts) > 0 {
		t.Errorf("a Service that is not used has %v", parts)
	}
}

// FuzzService: with any contents of a Service, conversion does not panic, lets through
// only canonical values, and does not open to all what named its clients.
func FuzzService(f *testing.F) {
	f.Add("LoadBalancer", "Local", "1.2.3.4", "VIP", "10.1.2.3/8,fd00::/8, 010.0.0.0/9 ,10.0.0.0/8", int32(30080), int32(32000))
	f.Add("LoadBalancer", "Cluster", "fd00::1", "Proxy", "bad", int32(0), int32(0))
	f.Add("LoadBalancer", "", "1.2.3.4", "", "0.0.0.0/0,10.0.0.0/8,fd00::/129", int32(-1), int32(70000))
	f.Add("LoadBalancer", "x", "::ffff:1.2.3.4", "x", "::ffff:10.0.0.0/104,/,::/00,10.0.0.0/08", int32(65536), int32(-1))
	f.Add("NodePort", "Local", "0127.0.0.1", "VIP", "10.0.0.0/8", int32(65535), int32(1))
	f.Add("", "Local", "fe80::1%eth0", "", ",", int32(1), int32(1))
	f.Fuzz(func(t *testing.T, kind, policy, ip, mode, ranges string, nodePort, healthPort int32) {
		ipMode := corev1.LoadBalancerIPMode(mode)
		svc := &corev1.Service{Spec: corev1.ServiceSpec{
			Type: corev1.ServiceType(kind), ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicy(policy),
			ExternalIPs: []string{ip, "1.2.3.4", ip}, LoadBalancerSourceRanges: strings.Split(ranges, ","), HealthCheckNodePort: healthPort,
			Ports: []corev1.ServicePort{{Name: "a", Port: 80, NodePort: nodePort}, {Name: "b", Port: 81, NodePort: nodePort}},
		}}
		svc.Name = "web"
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip, IPMode: &ipMode}, {IP: "1.2.3.4"}, {IP: "fd00::1"}, {IP: ip}}
		got := source.Service(model.FromFile, svc)
		checkExternal(t, got)
		if !strings.Contains(ranges, "/0") && len(got.SourceRanges) == 0 && len(got.Ingress) > 0 {
			t.Errorf("ranges %q leave %v open to everybody", ranges, got.Ingress)
		}
	})
}

func checkExternal(t *testing.T, s model.Service) {
	for i, pfx := range s.SourceRanges {
		if pfx != pfx.Masked() || pfx.Bits() < 1 || pfx.Addr().Is4In6() || i > 0 && s.SourceRanges[i-1].Compare(pfx) >= 0 {
			t.Errorf("source ranges are not canonical, sorted and unique: %v", s.SourceRanges)
		}
	}
	addrs := slices.Clone(s.ExternalIPs)
	for _, i := range s.Ingress {
		addrs = append(addrs, i.Addr)
	}
	for _, a := range addrs {
		if !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "" {
			t.Errorf("address %v got through", a)
		}
	}
	if !unique(s.ExternalIPs) || !unique(addrs[len(s.ExternalIPs):]) {
		t.Errorf("an address is listed twice: %v, %v", s.ExternalIPs, s.Ingress)
	}
	if len(s.Ports) != 2 || s.Ports[1].NodePort != 0 {
		t.Errorf("ports %v: want two, and the node port once", s.Ports)
	}
	if s.Type != "LoadBalancer" && len(s.Ingress)+len(s.SourceRanges)+int(s.HealthCheckNodePort) > 0 {
		t.Errorf("%s has what belongs to a LoadBalancer: %+v", s.Type, s)
	}
}

func unique(addrs []netip.Addr) bool {
	sorted := slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
	return len(slices.Compact(sorted)) == len(addrs)
}
