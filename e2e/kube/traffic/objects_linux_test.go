package traffic

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// namespace is where Services of tests are.
const namespace = "default"

// service is a Service with one TCP port, 80; more is set by the functions.
func service(name string, set ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
	for _, f := range set {
		f(s)
	}
	return s
}

// dualStack asks for an address of each family.
func dualStack(s *corev1.Service) {
	s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
}

// slices are the EndpointSlices of a Service with these backends, one of each family.
func slicesOf(name string, on ...server) []*discovery.EndpointSlice {
	var out []*discovery.EndpointSlice
	for _, family := range []discovery.AddressType{discovery.AddressTypeIPv4, discovery.AddressTypeIPv6} {
		s := &discovery.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: name + "-" + string(family[2:]) + "x", Namespace: namespace, Labels: map[string]string{discovery.LabelServiceName: name}},
			AddressType: family,
			Ports:       []discovery.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(backendPort)), Protocol: ptr.To(corev1.ProtocolTCP)}},
		}
		for _, b := range on {
			s.Endpoints = append(s.Endpoints, endpoint(b, family))
		}
		out = append(out, s)
	}
	return out
}

func endpoint(b server, family discovery.AddressType) discovery.Endpoint {
	addr := b.v4
	if family == discovery.AddressTypeIPv6 {
		addr = b.v6
	}
	return discovery.Endpoint{Addresses: []string{addr}, NodeName: ptr.To(b.node), Conditions: discovery.EndpointConditions{Ready: ptr.To(true)}}
}

// create writes a Service and its slices to the API, and returns the Service with the addresses that the server chose.
func (a *api) create(t *testing.T, s *corev1.Service, on ...server) *corev1.Service {
	t.Helper()
	made, err := a.tryCreate(t, s, on...)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (a *api) tryCreate(t *testing.T, s *corev1.Service, on ...server) (*corev1.Service, error) {
	made, err := a.client.CoreV1().Services(s.Namespace).Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	for _, slice := range slicesOf(s.Name, on...)[:len(made.Spec.ClusterIPs)] {
		if _, err := a.client.DiscoveryV1().EndpointSlices(s.Namespace).Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// createNodes writes both nodes.
func (a *api) createNodes(t *testing.T) {
	t.Helper()
	for name, addr := range map[string]string{thisNode: nodeAddr, otherNode: otherNodeAddr} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
		if _, err := a.client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// vip is where a Service answers in its first family.
func vip(s *corev1.Service) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIP), uint16(s.Spec.Ports[0].Port))
}
