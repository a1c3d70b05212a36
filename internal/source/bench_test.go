package source_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// BenchmarkService converts a Service of both families: beyond a fixed part, the time follows its ports.
func BenchmarkService(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("ports=%d", n), func(b *testing.B) {
			in := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
				Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "fd00:96::1"}},
			}
			for i := range n {
				in.Spec.Ports = append(in.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(1 + i), NodePort: int32(30000 + i)})
			}
			b.ReportAllocs()
			for b.Loop() {
				if out := source.Service(model.FromKube, in); len(out.Ports) != n {
					b.Fatalf("%d ports, problems %v", len(out.Ports), out.Problems)
				}
			}
		})
	}
}

// BenchmarkSlice converts an EndpointSlice: the time follows its endpoints and nothing else. The controller makes slices of a hundred, the
// API takes a thousand.
func BenchmarkSlice(b *testing.B) {
	for _, n := range []int{10, 100, 1_000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			in := endpointSlice(n)
			b.ReportAllocs()
			for b.Loop() {
				if out := source.Slice(model.FromKube, in); len(out.Endpoints) != n {
					b.Fatalf("%d endpoints, problems %v", len(out.Endpoints), out.Problems)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/endpoint")
		})
	}
}

func endpointSlice(n int) *discoveryv1.EndpointSlice {
	name, port, node, yes, no := "http", int32(8080), "node-a", true, false
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for i := range n {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.244.%d.%d", i>>8, i&255)}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}},
		})
	}
	return s
}
