package traffic

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// patchNode changes the agent's own Node.
func (a *api) patchNode(t *testing.T, patch string) {
	t.Helper()
	_, err := a.client.CoreV1().Nodes().Patch(t.Context(), thisNode, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
}

// hinted gives a Service one backend in each of two zones, with the hints that say so.
func (a *api) hinted(t *testing.T, name string, inA, inB server) *corev1.Service {
	t.Helper()
	s, err := a.client.CoreV1().Services(namespace).Create(t.Context(), service(name), metav1.CreateOptions{})
	must(t, err)
	slice := slicesOf(name, inA, inB)[0]
	for i, zone := range []string{"zone-a", "zone-b"} {
		slice.Endpoints[i].Hints = &discovery.EndpointHints{ForZones: []discovery.ForZone{{Name: zone}}}
	}
	_, err = a.client.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), slice, metav1.CreateOptions{})
	must(t, err)
	return s
}

// TestZoneOfTheNode: a changed zone label changes the chosen backends at once. No request fails,
// not even a running one at an endpoint that is no longer chosen.
func TestZoneOfTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	web := a.hinted(t, "web", backends[0], backends[2])
	newAgent(t, w, a.kubeconfigFor(t, cluster.Admin)).start(t)
	for _, tt := range []struct {
		label string
		want  []server
	}{
		{`"zone-a"`, backends[:1]},
		{`"zone-b"`, backends[2:3]},
		{`null`, []server{backends[0], backends[2]}}, // without a zone hints mean nothing
		{`"zone-a"`, backends[:1]},
	} {
		a.patchNode(t, `{"metadata": {"labels": {"topology.kubernetes.io/zone": `+tt.label+`}}}`)
		poll(t, fmt.Sprintf("zone %s to be followed", tt.label), settleTimeout, func() error {
			got := w.pod.ask(vip(web), 6)
			if got.OK != 6 {
				t.Errorf("of 6 requests %d failed: %v", got.Failures(), got.Failed)
			}
			if len(got.Backends) != len(tt.want) || got.Backends[tt.want[0].name] == 0 {
				return fmt.Errorf("answers by %v, want %d backends and %s", got.Backends, len(tt.want), tt.want[0].name)
			}
			return nil
		})
	}
}

// TestNodeIsToGo: load balancers are told to take their traffic elsewhere, the kubelet that all is well.
func TestNodeIsToGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	p := newAgent(t, w, a.kubeconfigFor(t, cluster.Admin))
	p.start(t)
	wantEligible(t, p, 200, true)
	a.patchNode(t, `{"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}`)
	wantEligible(t, p, 503, false)
	p.answers(t, "/livez", 200, settleTimeout)
	p.answers(t, "/readyz", 200, settleTimeout)
	a.patchNode(t, `{"spec": {"taints": null}}`)
	wantEligible(t, p, 200, true)
}

// wantEligible waits for a status of /healthz, whose body has the reason.
func wantEligible(t *testing.T, p *proxy, code int, eligible bool) {
	t.Helper()
	body := p.answers(t, "/healthz", code, settleTimeout)
	var said struct{ NodeEligible, Healthy *bool }
	if err := json.Unmarshal([]byte(body), &said); err != nil || said.NodeEligible == nil || said.Healthy == nil {
		t.Fatalf("/healthz is %s, error %v", body, err)
	}
	if *said.NodeEligible != eligible || !*said.Healthy {
		t.Errorf("/healthz is %s, want nodeEligible %t and healthy true", body, eligible)
	}
}
