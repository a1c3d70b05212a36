package plane

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Objects are as large as those of a cluster: an endpoint has a Pod, a zone and all conditions, a slice its owner and controller, a
// Node the images that are on it.
const (
	namespace  = metav1.NamespaceDefault
	images     = 50 // of a Node (nodeStatusMaxImages of the kubelet)
	zones      = 3
	firstAddr  = 10<<24 | 128<<16 // of endpoints: 10.128.0.0/9
	firstOther = 10<<24 | 192<<16 // of those that replace others
)

// Name is that of a Service.
func Name(i int) string { return fmt.Sprintf("checkout-backend-%05d", i) }

// NodeName is that of a Node, and of the agent there.
func NodeName(i int) string {
	return fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i>>8, i&0xff)
}

func service(i int) *corev1.Service {
	labels := map[string]string{"app.kubernetes.io/name": Name(i), "app.kubernetes.io/part-of": "checkout", "app.kubernetes.io/managed-by": "Helm"}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: Name(i), Namespace: namespace, Labels: labels}}
	s.Spec.Selector = map[string]string{"app.kubernetes.io/name": Name(i)}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
	return s
}

// uid is one for each name.
func uid(name string) types.UID {
	h := sha256.Sum256([]byte(name))
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

func addr(base uint32, n int) string {
	v := base + uint32(n)
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}).String()
}

// slice is that of a Service. Of version 0 all endpoints are its first; each other has one of them replaced.
func slice(i, endpoints, nodes, version int) *discovery.EndpointSlice {
	s := &discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: Name(i) + "-x7k2p", GenerateName: Name(i) + "-", Namespace: namespace,
			Labels: map[string]string{
				discovery.LabelServiceName: Name(i), discovery.LabelManagedBy: "endpointslice-controller.k8s.io",
				"app.kubernetes.io/name": Name(i), "app.kubernetes.io/part-of": "checkout", "app.kubernetes.io/managed-by": "Helm",
			},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: Name(i), UID: uid(Name(i)), Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		AddressType: discovery.AddressTypeIPv4,
		Ports:       []discovery.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for e := range endpoints {
		n := i*endpoints + e
		s.Endpoints = append(s.Endpoints, endpoint(i, n, nodes, addr(firstAddr, n)))
	}
	if version > 0 && endpoints > 0 {
		s.Endpoints[version%endpoints].Addresses = []string{replacement(version)}
	}
	return s
}

// replacement is the address of the endpoint that a version brings.
func replacement(version int) string { return addr(firstOther, version) }

func endpoint(service, n, nodes int, address string) discovery.Endpoint {
	pod := fmt.Sprintf("%s-6d4b75cb6d-%05x", Name(service), n&0xfffff)
	e := discovery.Endpoint{
		Addresses:  []string{address},
		Conditions: discovery.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod, UID: uid(pod)},
		Zone:       ptr.To(zone(n)),
	}
	if nodes > 0 {
		e.NodeName = ptr.To(NodeName(n % nodes))
	}
	return e
}

func zone(n int) string { return fmt.Sprintf("eu-central-1%c", 'a'+n%zones) }

func node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName(i), Labels: map[string]string{
		corev1.LabelHostname: NodeName(i), corev1.LabelTopologyZone: zone(i), corev1.LabelTopologyRegion: "eu-central-1",
		corev1.LabelInstanceTypeStable: "m6i.2xlarge", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
	}}}
	n.Spec.PodCIDRs = []string{fmt.Sprintf("10.%d.%d.0/24", 64+i>>8, i&0xff)}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.%d.%d", i>>8, i&0xff)}, {Type: corev1.NodeHostName, Address: NodeName(i)},
	}
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("110")}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.Conditions = conditions(0)
	for k := range images {
		name := fmt.Sprintf("registry.example.com/platform/component-%02d", k)
		digest := sha256.Sum256([]byte(name))
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("%s@sha256:%x", name, digest), name + ":v1.4.2"}, SizeBytes: int64(80+k) << 20,
		})
	}
	return n
}

func conditions(beat int) (out []corev1.NodeCondition) {
	at := metav1.NewTime(time.Unix(1_700_000_000+int64(beat)*300, 0))
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		status := corev1.ConditionFalse
		if kind == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		out = append(out, corev1.NodeCondition{Type: kind, Status: status, Reason: "Kubelet" + string(kind), Message: "kubelet reports " + string(kind),
			LastHeartbeatTime: at, LastTransitionTime: metav1.NewTime(time.Unix(1_700_000_000, 0))})
	}
	return out
}

// Beat writes the status of a Node as its kubelet does every five minutes (nodeStatusReportFrequency). Each beat is another one.
func (p *Plane) Beat(ctx context.Context, i, beat int) error {
	n, err := p.client.CoreV1().Nodes().Get(ctx, NodeName(i), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Node %d: %w", i, err)
	}
	n.Status.Conditions = conditions(beat)
	if _, err := p.client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write Node %d: %w", i, err)
	}
	return nil
}

// Marker is the Service whose changes agents are asked about.
const Marker = 0

// MarkerAddr is the address of the endpoint that a version of the marker brings.
func MarkerAddr(version int) netip.Addr { return netip.MustParseAddr(replacement(version)) }
