package traffic

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// annotated gives a Service one of our annotations.
func annotated(key, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, "kube-ipvs.io/"+key, value) }
}

// annotation is a patch that gives an object one of our annotations; null takes it away.
func annotation(key, json string) string {
	return `{"metadata": {"annotations": {"kube-ipvs.io/` + key + `": ` + json + `}}}`
}

// patchSlice changes an EndpointSlice.
func (a *api) patchSlice(t *testing.T, name, patch string) {
	t.Helper()
	_, err := a.client.DiscoveryV1().EndpointSlices(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
}

// TestAnnotationsRefused: annotations of a Service, of a slice and of this Node that cannot be read are told by Events about the
// Service and the Node. Each costs itself: annotations beside it are followed, and the Services answer.
func TestAnnotationsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	a.patchNode(t, annotation("weight", `"heavy"`))
	web := a.create(t, service("web", annotated("drain", "forever"), annotated("scheduler", "wlc")), backends[2:]...)
	sliced := a.create(t, service("sliced"), backends[2:]...)
	a.patchSlice(t, "sliced-v4x", annotation("weight", `"70000"`))
	newAgent(t, w, a.kubeconfigFor(t, cluster.Admin)).start(t)
	wantAnswers(t, "with an annotation that cannot be read", w.pod, vip(web), 8)
	wantAnswers(t, "with one on the slice", w.pod, vip(sliced), 8)
	if got := w.node.shell(t, "ipvsadm -Sn"); !strings.Contains(got, fmt.Sprintf("-A -t %s -s wlc\n", vip(web))) {
		t.Errorf("the scheduler beside the bad annotation is not followed:\n%s", got)
	}
	wantRefusal(t, a.wantEvent(t, "Service", "web", "AnnotationRefused"), "kube-ipvs.io/drain", `"forever"`)
	wantRefusal(t, a.wantEvent(t, "Service", "sliced", "AnnotationRefused"), "EndpointSlice default/sliced-v4x", "kube-ipvs.io/weight", `"70000"`)
	wantRefusal(t, a.wantEvent(t, "Node", thisNode, "AnnotationRefused"), "kube-ipvs.io/weight", `"heavy"`)
}

// wantRefusal fails where an Event is no Warning, or its text lacks something.
func wantRefusal(t *testing.T, e *eventsv1.Event, names ...string) {
	t.Helper()
	for _, name := range names {
		if e.Type != corev1.EventTypeWarning || !strings.Contains(e.Note, name) {
			t.Errorf("the Event about %s %s is %s %q, want a Warning that names %s", e.Regarding.Kind, e.Regarding.Name, e.Type, e.Note, name)
		}
	}
}

// TestWeightOfANode: the weight that a Node asks for is that of its endpoints in the kernel, and follows the Node; one of 0 keeps new
// connections away. Nothing else of the kernel changes, and no request fails.
func TestWeightOfANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	here, there := backends[0], backends[2]
	web := a.create(t, service("web", annotated("scheduler", "wrr")), here, there)
	newAgent(t, w, a.kubeconfigFor(t, cluster.Admin)).start(t)
	before := w.kernel(t)
	for _, tt := range []struct {
		said, weight string // in JSON, and in the kernel
		backends     int    // that answer
	}{
		{`"3"`, "3", 2},
		{`"0"`, "0", 1},
		{`"heavy"`, "1", 2},
		{`null`, "1", 2},
	} {
		a.patchNode(t, annotation("weight", tt.said))
		want := map[string]string{address(here): tt.weight, address(there): "1"}
		poll(t, "weight "+tt.said+" of the Node in the kernel", settleTimeout, func() error {
			if diff := cmp.Diff(want, w.weights(t, vip(web))); diff != "" {
				return fmt.Errorf("weights (-want +got):\n%s", diff)
			}
			return nil
		})
		if got := w.pod.ask(vip(web), 8); got.OK != 8 || len(got.Backends) != tt.backends || got.Backends[there.name] == 0 {
			t.Errorf("weight %s: %d of 8 requests answered, by %v, want all, by %d backends", tt.said, got.OK, got.Backends, tt.backends)
		}
	}
	same(t, "kernel when the Node says no weight any more", before, w.kernel(t))
}

// address is where a backend answers over IPv4.
func address(b server) string {
	return netip.AddrPortFrom(netip.MustParseAddr(b.v4), backendPort).String()
}

// weights are those of the destinations of a TCP server in the kernel, by address.
func (w *world) weights(t *testing.T, at netip.AddrPort) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(w.node.shell(t, "ipvsadm -Sn")) {
		// -a -t 10.96.0.10:80 -r 10.244.0.1:8080 -m -w 1
		if f := strings.Fields(line); len(f) >= 8 && f[0] == "-a" && f[1] == "-t" && f[2] == at.String() {
			out[f[4]] = f[7]
		}
	}
	return out
}
