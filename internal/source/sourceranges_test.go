package source_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// closedTo is the problem that tells why load-balancer addresses are missing.
func closedTo(family string) string {
	return "problem spec.loadBalancerSourceRanges: no usable " + family +
		" range: the " + family + " load-balancer addresses are not served"
}

// TestSourceRanges: the limits on clients of a load balancer with an address of
// each family. An address that is missing is not served.
func TestSourceRanges(t *testing.T) {
	const v4, v6 = "ingress 1.2.3.4", "ingress fd00::1"
	const bad0 = "problem spec.loadBalancerSourceRanges[0]: "
	const bad1 = "problem spec.loadBalancerSourceRanges[1]: "
	for _, tt := range []externalTest{
		{"none", "[]", lines(balancerHead, v4, v6)},
		{"both families", "['fd00::/8', 10.0.0.0/8]", lines(balancerHead, v4, v6, "ranges [10.0.0.0/8 fd00::/8]")},
		{"sorted and unique", "[10.2.0.0/16, 10.1.0.0/16, 10.2.0.0/16]", lines(balancerHead, v4, v6, "ranges [10.1.0.0/16 10.2.0.0/16]")},
		{"host bits", "[10.1.2.3/8, 10.0.0.0/8, 'fd00::1/64']", lines(balancerHead, v4, v6, "ranges [10.0.0.0/8 fd00::/64]")},
		{"overlapping", "[10.0.0.0/8, 10.1.0.0/16]", lines(balancerHead, v4, v6, "ranges [10.0.0.0/8 10.1.0.0/16]")},
		{"single addresses", "[10.0.0.1/32, 'fd00::2/128']", lines(balancerHead, v4, v6, "ranges [10.0.0.1/32 fd00::2/128]")},
		{"blanks around", "[' 10.0.0.0/8 ', \"\\tfd00::/8\\n\"]", lines(balancerHead, v4, v6, "ranges [10.0.0.0/8 fd00::/8]")},
		{"leading zeros", "[010.001.0.0/016]", lines(balancerHead, v4, v6, "ranges [10.1.0.0/16]",
			bad0+`"010.001.0.0/016" has leading zeros, read as 10.1.0.0/16`)},
		{"one family only, the other stays open", "[10.0.0.0/8]", lines(balancerHead, v4, v6, "ranges [10.0.0.0/8]")},

		{"everybody", "[0.0.0.0/0]", lines(balancerHead, v4, v6)},
		{"everybody and some", "[10.0.0.0/8, 0.0.0.0/0, 11.0.0.0/8]", lines(balancerHead, v4, v6)},
		{"everybody of one family", "[0.0.0.0/0, 10.0.0.0/8, 'fd00::/8']", lines(balancerHead, v4, v6, "ranges [fd00::/8]")},
		{"everybody of the other family", "['::/0', 'fd00::/8', 10.0.0.0/8]", lines(balancerHead, v4, v6, "ranges [10.0.0.0/8]")},
		{"everybody with host bits", "[10.0.0.0/0]", lines(balancerHead, v4, v6)},
		{"everybody beside a bad one", "[0.0.0.0/0, 10.0.0.0/33]", lines(balancerHead, v4, v6, bad1+`"10.0.0.0/33" is not a network`)},

		{"bad beside good", "[bad, 10.0.0.0/8, 'fd00::/8']", lines(balancerHead, v4, v6, "ranges [10.0.0.0/8 fd00::/8]", bad0+`"bad" is not a network`)},
		{"all bad", "[10.0.0.1, 10.0.0.0/33]", lines(balancerHead, bad0+`"10.0.0.1" is not a network`,
			bad1+`"10.0.0.0/33" is not a network`, closedTo("IPv4"), closedTo("IPv6"))},
		{"only an empty text", "['']", lines(balancerHead, bad0+`"" is not a network`, closedTo("IPv4"), closedTo("IPv6"))},
		{"only a mapped network", "['::ffff:10.0.0.0/104']", lines(balancerHead, bad0+`"::ffff:10.0.0.0/104" is not a network`,
			closedTo("IPv4"), closedTo("IPv6"))},
		{"only a zone", "['fe80::%eth0/64']", lines(balancerHead, bad0+`"fe80::%eth0/64" is not a network`, closedTo("IPv4"), closedTo("IPv6"))},
		{"the only one of its family", "['fd00::/129', 10.0.0.0/8]", lines(balancerHead, v4, "ranges [10.0.0.0/8]",
			bad0+`"fd00::/129" is not a network`, closedTo("IPv6"))},
		{"the only one of the other family", "[10.0.0.0/33, 'fd00::/8']", lines(balancerHead, v6, "ranges [fd00::/8]",
			bad0+`"10.0.0.0/33" is not a network`, closedTo("IPv4"))},
		{"of the family that has another", "[10.0.0.0/33, 10.0.0.0/8]", lines(balancerHead, v4, v6, "ranges [10.0.0.0/8]",
			bad0+`"10.0.0.0/33" is not a network`)},
		{"of no family beside one", "[office, 10.0.0.0/8]", lines(balancerHead, v4, "ranges [10.0.0.0/8]",
			bad0+`"office" is not a network`, closedTo("IPv6"))},
	} {
		tt.body = "spec: {type: LoadBalancer, loadBalancerSourceRanges: " + tt.body +
			"}\nstatus: {loadBalancer: {ingress: [{ip: 1.2.3.4}, {ip: 'fd00::1'}]}}"
		t.Run(tt.name, tt.check)
	}
}

// TestUnusableRangesCloseOnlyLoadBalancerAddresses: external IPs and node ports are
// not what the ranges are about, and a Proxy address is left out like any other.
func TestUnusableRangesCloseOnlyLoadBalancerAddresses(t *testing.T) {
	externalTest{body: `
spec: {type: LoadBalancer, clusterIP: 10.96.0.1, externalIPs: [1.2.3.9], ports: [{port: 80, nodePort: 30080}], loadBalancerSourceRanges: [x]}
status: {loadBalancer: {ingress: [{ip: 1.2.3.4, ipMode: Proxy}]}}`,
		want: lines(balancerHead, "ips [10.96.0.1]", `port "" 80/tcp node port 30080`, "external ips [1.2.3.9]",
			`problem spec.loadBalancerSourceRanges[0]: "x" is not a network`, closedTo("IPv4"))}.check(t)
}

func TestSourceRangesOfOtherTypes(t *testing.T) {
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeExternalName} {
		t.Run(string(kind), func(t *testing.T) {
			in := &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, LoadBalancerSourceRanges: []string{"10.0.0.0/8", "x"}}}
			in.Name = "web"
			got := source.Service(model.FromFile, in)
			want := []string{"spec.loadBalancerSourceRanges: has no effect: the type is " + string(kind) + ", not LoadBalancer"}
			if diff := cmp.Diff(want, got.Problems); diff != "" || got.SourceRanges != nil {
				t.Errorf("ranges %v, problems (-want +got):\n%s", got.SourceRanges, diff)
			}
		})
	}
}

// TestSourceRangesInAnAnnotation: the annotation of old is not read.
func TestSourceRangesInAnAnnotation(t *testing.T) {
	in := read[corev1.Service](t, `
metadata: {name: web, annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: 10.0.0.0/8}}
spec: {type: LoadBalancer}
status: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}}`)
	want := lines(balancerHead, "ingress 1.2.3.4")
	if diff := cmp.Diff(want, showService(source.Service(model.FromFile, in))); diff != "" {
		t.Errorf("service (-want +got):\n%s", diff)
	}
}
