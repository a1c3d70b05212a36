package source_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

func showNode(n model.Node) string {
	out := []string{fmt.Sprintf("%s zone=%q pods=%v addresses=%v", n.Name, n.Zone, n.PodCIDRs, n.Addresses)}
	if n.Leaving {
		out = append(out, "leaving")
	}
	for _, p := range n.Problems {
		out = append(out, "problem "+p)
	}
	return lines(out...)
}

func TestNode(t *testing.T) {
	tests := []struct{ name, manifest, want string }{
		{"full", `
metadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}
spec: {podCIDR: 10.1.0.0/24, podCIDRs: [10.1.0.0/24, 'fd00:1::/64']}
status:
  addresses:
  - {type: ExternalIP, address: 1.2.3.4}
  - {type: Hostname, address: n1}
  - {type: InternalIP, address: 192.168.0.1}
  - {type: InternalIP, address: 'fd00::1'}`,
			lines(`n1 zone="a" pods=[10.1.0.0/24 fd00:1::/64] addresses=[192.168.0.1 fd00::1 1.2.3.4]`)},
		{"only podCIDR", "{metadata: {name: n1}, spec: {podCIDR: 10.1.0.0/24}}", lines(`n1 zone="" pods=[10.1.0.0/24] addresses=[]`)},
		{"host bits and zeros", "{metadata: {name: n1}, spec: {podCIDRs: [010.001.000.007/24]}}", lines(`n1 zone="" pods=[10.1.0.0/24] addresses=[]`,
			`problem spec.podCIDRs[0]: "010.001.000.007/24" has leading zeros, read as 10.1.0.0/24`)},
		{"address with zeros", "{metadata: {name: n1}, status: {addresses: [{type: ExternalIP, address: 001.2.3.04}, {type: InternalIP, address: 010.0.0.1}]}}",
			lines(`n1 zone="" pods=[] addresses=[10.0.0.1 1.2.3.4]`,
				`problem status.addresses[1].address: "010.0.0.1" has leading zeros, read as 10.0.0.1`,
				`problem status.addresses[0].address: "001.2.3.04" has leading zeros, read as 1.2.3.4`)},
		{"nothing", "{metadata: {name: n1}}", lines(`n1 zone="" pods=[] addresses=[]`)},
		{"bad networks", "{metadata: {name: n1}, spec: {podCIDRs: [x, 10.1.0.0/24, 10.2.0.0/24, 10.0.0.1, 10.0.0.0/33]}}",
			lines(`n1 zone="" pods=[10.1.0.0/24] addresses=[]`,
				`problem spec.podCIDRs[0]: "x" is not a network`,
				"problem spec.podCIDRs[2]: 10.2.0.0/24 is a second IPv4 network, only 10.1.0.0/24 is used",
				`problem spec.podCIDRs[3]: "10.0.0.1" is not a network`,
				`problem spec.podCIDRs[4]: "10.0.0.0/33" is not a network`)},
		{"bad address", "{metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: x}, {type: InternalIP, address: 10.0.0.1}, {type: ExternalIP, address: 10.0.0.1}]}}",
			lines(`n1 zone="" pods=[] addresses=[10.0.0.1]`, `problem status.addresses[0].address: "x" is not an IP address`)},
		{"deleted", "{metadata: {name: n1, deletionTimestamp: 2026-01-01T00:00:00Z}}", lines(`n1 zone="" pods=[] addresses=[]`, "leaving")},
		{"to be deleted", "{metadata: {name: n1}, spec: {taints: [{key: x}, {key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}}",
			lines(`n1 zone="" pods=[] addresses=[]`, "leaving")},
		{"other taints", "{metadata: {name: n1}, spec: {unschedulable: true, taints: [{key: node.kubernetes.io/not-ready, effect: NoExecute}]}}",
			lines(`n1 zone="" pods=[] addresses=[]`)},
		{"dotted name", "{metadata: {name: n1.example.org}}", lines(`n1.example.org zone="" pods=[] addresses=[]`)},
		{"bad name", "{metadata: {name: 'N 1'}, spec: {podCIDR: 10.1.0.0/24}}", lines(`N 1 zone="" pods=[] addresses=[]`,
			`problem metadata.name: "N 1" is not made of a-z, 0-9 and '-': the object is not used`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, showNode(source.Node(read[corev1.Node](t, tt.manifest)))); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStateNames(t *testing.T) {
	got := []string{source.Starting.String(), source.Partial.String(), source.Complete.String(), source.State(9).String()}
	if diff := cmp.Diff([]string{"starting", "partial", "complete", "unknown"}, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

// FuzzConversion: with any contents of an object, conversion neither panics nor lets
// through what a dataplane could not use.
func FuzzConversion(f *testing.F) {
	f.Add("web", "10.96.0.1", "fd00::1", "http", int32(80), int32(10800))
	f.Add("", "010.096.000.001", "::ffff:1.2.3.4", "A b", int32(70000), int32(-1))
	f.Add(strings.Repeat("x", 300), "127.0.0.1", "None", "", int32(0), int32(0))
	f.Add("a\nb", "1..2.3", "fe80::1%eth0", "a", int32(-1), int32(86401))
	f.Add("a", "....", "::ffff:0000.0.0.00", "-", int32(65536), int32(1))
	f.Fuzz(func(t *testing.T, name, ip1, ip2, port string, number, timeout int32) {
		svc := &corev1.Service{Spec: corev1.ServiceSpec{
			ClusterIP: ip1, ClusterIPs: []string{ip1, ip2}, IPFamilies: []corev1.IPFamily{corev1.IPFamily(port)},
			Ports:                 []corev1.ServicePort{{Name: port, Port: number}, {Name: name, Port: timeout, Protocol: corev1.Protocol(port)}},
			SessionAffinity:       corev1.ServiceAffinityClientIP,
			SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}},
		}}
		svc.Name, svc.Namespace = name, port
		slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
			Ports:     []discoveryv1.EndpointPort{{Name: &port, Port: &number}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip1}}, {Addresses: []string{ip2}}}}
		slice.Name, slice.Labels = "s", map[string]string{discoveryv1.LabelServiceName: name}
		node := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: ip1 + "/8"}}
		node.Name = name
		source.Node(node)
		checkService(t, source.Service(model.FromFile, svc))
		checkSlice(t, source.Slice(model.FromFile, slice))
	})
}

func checkService(t *testing.T, s model.Service) {
	for _, a := range s.ClusterIPs {
		if !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "" {
			t.Errorf("cluster IP %v got through", a)
		}
	}
	for _, p := range s.Ports {
		if p.Port == 0 || len(p.Name) > 63 || strings.ContainsAny(p.Name, " \n\"") {
			t.Errorf("port %+v got through", p)
		}
	}
	if sec := s.Affinity.Seconds(); sec < 0 || sec > 86400 {
		t.Errorf("affinity %v got through", s.Affinity)
	}
}

func checkSlice(t *testing.T, s model.Slice) {
	for _, e := range s.Endpoints {
		if !e.Addr.Is4() || !e.Addr.IsGlobalUnicast() {
			t.Errorf("endpoint %v got through", e.Addr)
		}
	}
	if _, err := yaml.Marshal(s.Problems); err != nil {
		t.Errorf("problems cannot be printed: %v", err)
	}
}
