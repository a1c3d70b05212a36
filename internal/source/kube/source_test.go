package kube_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// sink keeps what it is told, as lines.
type sink struct {
	mu    sync.Mutex
	lines map[string]string
	state source.State
}

func (s *sink) put(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines == nil {
		s.lines = map[string]string{}
	}
	if value == "" {
		delete(s.lines, key)
		return
	}
	s.lines[key] = value
}

func (s *sink) SetService(v model.Service) {
	s.put("service "+v.ID.String(), fmt.Sprint(v.ID.Origin, v.ClusterIPs))
}
func (s *sink) DeleteService(id model.ServiceID) { s.put("service "+id.String(), "") }
func (s *sink) SetSlice(v model.Slice) {
	s.put("slice "+v.ID.String(), fmt.Sprintf("%s of %s: %d", v.ID.Origin, v.Service, len(v.Endpoints)))
}
func (s *sink) DeleteSlice(id model.SliceID) { s.put("slice "+id.String(), "") }
func (s *sink) SetNode(o model.Origin, n model.Node) {
	s.put("node "+n.Name, fmt.Sprintf("%s %s %v %v", o, n.Zone, n.PodCIDRs, n.Addresses))
}
func (s *sink) DeleteNode(_ model.Origin, name string) { s.put("node "+name, "") }
func (s *sink) SetState(_ model.Origin, state source.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []string{"state " + s.state.String()}
	for k, v := range s.lines {
		out = append(out, k+" = "+v)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func web(ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

func webSlice(endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{e}})
	}
	return s
}

func node(name, addr string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z1"}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/24"}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}},
	}
}

// run follows a client until the test ends.
func run(t *testing.T, client kube.API, o kube.Options, prepare ...func(*kube.Source)) (*kube.Source, *sink) {
	t.Helper()
	return runWith(t, zaptest.NewLogger(t), client, o, prepare...)
}

// runWith calls prepare with the source before the source runs.
func runWith(t *testing.T, log *zap.Logger, client kube.API, o kube.Options, prepare ...func(*kube.Source)) (*kube.Source, *sink) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s, out := kube.New(log, client, o), &sink{}
	for _, p := range prepare {
		p(s)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, out
}

// expect waits until the sink holds what is wanted.
func expect(t *testing.T, s *sink, want ...string) {
	t.Helper()
	slices.Sort(want)
	all := strings.Join(want, "\n")
	poll.Until(t, "the objects in the sink", func() bool { return s.String() == all },
		func() string { return "sink (-want +got):\n" + cmp.Diff(all, s.String()) })
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFollowsTheAPI(t *testing.T) {
	client := fake.NewClientset(web("10.96.0.10"), webSlice("10.244.0.1"), node("here", "192.168.0.1"), node("far", "192.168.0.2"))
	s, out := run(t, kube.Of(client), kube.Options{Node: "here", AllNodes: true})
	here, far := "node here = kube z1 [10.244.0.0/24] [192.168.0.1]", "node far = kube  [] [192.168.0.2]"
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.10]", "slice shop/web-1 = kube of shop/web: 1", here, far)

	_, err := client.CoreV1().Services("shop").Update(t.Context(), web("10.96.0.11"), metav1.UpdateOptions{})
	mustDo(t, err)
	_, err = client.DiscoveryV1().EndpointSlices("shop").Update(t.Context(), webSlice("10.244.0.1", "10.244.0.2"), metav1.UpdateOptions{})
	mustDo(t, err)
	mustDo(t, client.CoreV1().Nodes().Delete(t.Context(), "far", metav1.DeleteOptions{}))
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.11]", "slice shop/web-1 = kube of shop/web: 2", here)

	mustDo(t, client.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	mustDo(t, client.DiscoveryV1().EndpointSlices("shop").Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
	expect(t, out, "state complete", here)
	for kind, p := range s.Progress() {
		if !p.Synced || p.Heard.IsZero() || p.Err != nil {
			t.Errorf("%s: %+v", kind, p)
		}
	}
}

// The server omits objects of other kinds, and fields that are not read.
func TestAsksForWhatItReads(t *testing.T) {
	for _, all := range []bool{true, false} {
		t.Run(fmt.Sprintf("all nodes %t", all), func(t *testing.T) {
			client := fake.NewClientset()
			var mu sync.Mutex
			asked := map[string]string{}
			client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
				r := a.(clienttesting.ListAction).GetListRestrictions()
				mu.Lock()
				defer mu.Unlock()
				asked[a.GetResource().Resource] = strings.TrimSpace(r.Labels.String() + " " + r.Fields.String())
				return false, nil, nil
			})
			_, out := run(t, kube.Of(client), kube.Options{Node: "here", AllNodes: all})
			expect(t, out, "state complete")
			want := map[string]string{
				"services":       "!service.kubernetes.io/service-proxy-name spec.clusterIP!=None",
				"endpointslices": "!service.kubernetes.io/headless",
				"nodes":          "metadata.name=here",
			}
			if all {
				want["nodes"] = ""
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

// A server that does not answer keeps the source from being complete, with a reason;
// when it answers, everything goes on.
func TestServerAway(t *testing.T) {
	client := fake.NewClientset(web("10.96.0.10"))
	var away atomic.Bool
	away.Store(true)
	client.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away.Load(), nil, errors.New("etcd is on holiday")
	})
	s, out := run(t, kube.Of(client), kube.Options{Node: "here"}, (*kube.Source).Hasten)
	expect(t, out, "state coming", "service shop/web = kube[10.96.0.10]")
	until(t, "the reason why the source is not complete", func() bool { return s.Progress()["endpointslices"].Err != nil })
	if p := s.Progress()["endpointslices"]; p.Synced || !strings.Contains(p.Err.Error(), "on holiday") {
		t.Errorf("progress %+v", p)
	}
	away.Store(false)
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.10]")
	until(t, "end of the trouble", func() bool { return s.Progress()["endpointslices"].Err == nil }) // once it is watched again
}
