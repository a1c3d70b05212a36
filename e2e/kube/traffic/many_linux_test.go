package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// kinds are what is special about some of the many Services, out of every cycle; the others have a cluster IP and one TCP port. Left out
// is what the two proxies serve differently on purpose: Local policies without a local endpoint.
var kinds = map[int]func(i int, s *corev1.Service){
	0: func(_ int, s *corev1.Service) { dualStack(s) },
	1: func(_ int, s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort },
	2: func(_ int, s *corev1.Service) { loadBalancer(s) },
	3: func(_ int, s *corev1.Service) { sticky(s) },
	4: func(_ int, s *corev1.Service) { alsoUDP(s) },
	6: func(_ int, s *corev1.Service) { loadBalancer(s); externalLocal(s) },
	7: func(_ int, s *corev1.Service) {
		loadBalancer(s)
		s.Spec.LoadBalancerSourceRanges = []string{"192.168.0.0/16"}
	},
	8:  func(_ int, s *corev1.Service) { internalLocal(s) },
	9:  func(i int, s *corev1.Service) { s.Spec.ExternalIPs = []string{numbered("198.19", i)} },
	20: func(_ int, s *corev1.Service) { dualStack(s) },
}

// cycle is after how many Services the kinds come again, withoutEndpoints the place of one that has none.
const (
	cycle            = 40
	withoutEndpoints = 5
)

func loadBalancer(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }
func externalLocal(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}
func internalLocal(s *corev1.Service) {
	s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
}
func sticky(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }
func alsoUDP(s *corev1.Service) {
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP})
}

// numbered is an address of a range of 16 bits.
func numbered(prefix string, n int) string { return fmt.Sprintf("%s.%d.%d", prefix, n>>8, n&255) }

// endpointsEach is how many endpoints each of the many Services has.
const endpointsEach = 3

// podsOf are the endpoints of the i-th Service; no process answers there. Where a policy is Local
// the first is of this node.
func podsOf(i int) []server {
	if i%cycle == withoutEndpoints {
		return nil
	}
	var out []server
	for n := i * endpointsEach; n < (i+1)*endpointsEach; n++ {
		out = append(out, server{node: otherNode, v4: numbered("10.244", 1<<10+n), v6: fmt.Sprintf("fd00:10:244:4::%x", n+1)})
	}
	if k := i % cycle; k == 6 || k == 8 {
		out[0].node = thisNode
	}
	return out
}

// createKinds writes n Services of all kinds with their slices, and does not wait for any proxy.
func (a *api) createKinds(t *testing.T, n int) {
	t.Helper()
	list := corev1.List{}
	list.APIVersion, list.Kind = "v1", "List"
	add := func(o any) {
		raw, err := json.Marshal(o)
		must(t, err)
		list.Items = append(list.Items, runtime.RawExtension{Raw: raw})
	}
	for i := range n {
		s := service(fmt.Sprintf("kind-%d-%d", i%cycle, i))
		if special := kinds[i%cycle]; special != nil {
			special(i, s)
		}
		s.APIVersion, s.Kind = "v1", "Service"
		add(s)
		families := 1
		if s.Spec.IPFamilyPolicy != nil {
			families = 2
		}
		for _, slice := range slicesOf(s.Name, podsOf(i)...)[:families] {
			slice.APIVersion, slice.Kind = "discovery.k8s.io/v1", "EndpointSlice"
			if len(s.Spec.Ports) > 1 {
				slice.Ports = append(slice.Ports, discovery.EndpointPort{Name: ptr.To("dns"), Port: ptr.To(int32(5353)), Protocol: ptr.To(corev1.ProtocolUDP)})
			}
			add(slice)
		}
	}
	text, err := json.Marshal(list)
	must(t, err)
	must(t, a.Create(t.Context(), string(text)))
	a.balance(t)
}

// balance gives each Service of type LoadBalancer that has no address one, as a cloud does.
func (a *api) balance(t *testing.T) {
	t.Helper()
	services := a.client.CoreV1().Services(namespace)
	all, err := services.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for i, s := range all.Items {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0 {
			continue
		}
		group.Go(func() error {
			_, err := a.giveAddress(ctx, &s, numbered("198.18", i+1))
			return err
		})
	}
	must(t, group.Wait())
}

// giveAddress writes the status of a load balancer.
func (a *api) giveAddress(ctx context.Context, s *corev1.Service, addr string) (*corev1.Service, error) {
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr}}
	return a.client.CoreV1().Services(s.Namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{})
}

// balanced creates a Service of type LoadBalancer and gives it an address.
func (a *api) balanced(t *testing.T, s *corev1.Service, addr string, on ...server) *corev1.Service {
	t.Helper()
	loadBalancer(s)
	made, err := a.giveAddress(t.Context(), a.create(t, s, slices.Clone(on)...), addr)
	must(t, err)
	return made
}
