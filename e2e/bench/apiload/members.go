// Package apiload is the Services of a benchmark and the API server that holds them. Every candidate meets the same objects: the package
// undoes all changes between two candidates.
//
//	members   N Services of M endpoints: one in ten has a NodePort, one in twenty a load balancer's address
//	probes    a few Services of one endpoint: after a change, every new connection shows whether the change is in place
//	added     Services that are added while a candidate runs
//	big       one Service of 500 endpoints, in five slices
//
// Names of members are hashed numbers, so the order of names differs from the order of creation. Services that are spread over both orders
// show when all are carried, in whatever order a candidate takes them.
package apiload

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/topology"
)

// namespace is where all Services are; both nodes, of which the candidate runs on the first and all endpoints are on the second.
const (
	namespace = "default"
	Node      = "node-a"
	otherNode = "node-b"
)

// memberName is one name for each number: the factor is odd, so no two numbers of 32 bits meet.
func memberName(i int) string { return fmt.Sprintf("member-%08x", uint32(i)*2654435761) }

// member is one of the Services, and its slice.
func member(i, endpoints int) (*corev1.Service, *discovery.EndpointSlice) {
	s := service(memberName(i))
	switch {
	case i%10 == 3:
		s.Spec.Type = corev1.ServiceTypeNodePort
	case i%20 == 7:
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
	}
	numbers := make([]int, endpoints)
	for e := range numbers {
		numbers[e] = i*endpoints + e
	}
	return s, slice(s.Name, s.Name, numbers...)
}

// service is a Service with one TCP port, 80.
func service(name string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

func sliceName(name string) string { return name + "-v4" }

// slice holds endpoints of a Service, by their numbers.
func slice(name, service string, endpoints ...int) *discovery.EndpointSlice {
	s := &discovery.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  metav1.ObjectMeta{Name: sliceName(name), Namespace: namespace, Labels: map[string]string{discovery.LabelServiceName: service}},
		AddressType: discovery.AddressTypeIPv4,
		Ports:       []discovery.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(topology.BackendPort)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, endpoint(e))
	}
	return s
}

func endpoint(i int) discovery.Endpoint {
	return discovery.Endpoint{Addresses: []string{topology.Endpoint(i).String()}, NodeName: ptr.To(otherNode), Conditions: discovery.EndpointConditions{Ready: ptr.To(true)}}
}

// Spread are the numbers of up to count members of n, half of them evenly in the order in which they were made, the others in that of their
// names. The first and the last of both orders are among them.
func Spread(n, count int) []int {
	byName := make([]int, n)
	for i := range byName {
		byName[i] = i
	}
	slices.SortFunc(byName, func(a, b int) int { return strings.Compare(memberName(a), memberName(b)) })
	half := min((count+1)/2, n)
	var out []int
	for k := range half {
		i := n - 1
		if half > 1 {
			i = k * (n - 1) / (half - 1)
		}
		for _, m := range []int{i, byName[i]} {
			if len(out) < count && !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	return out
}
