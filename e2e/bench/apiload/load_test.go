package apiload

import (
	"context"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/topology"
)

// newLoad has a few members in a client that keeps objects and gives Services addresses.
func newLoad(t *testing.T, n int) (*Load, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset()
	next := netip.MustParseAddr("10.96.0.10")
	client.PrependReactor("create", "services", func(action clienttesting.Action) (bool, runtime.Object, error) {
		s := action.(clienttesting.CreateAction).GetObject().(*corev1.Service)
		s.Spec.ClusterIP, next = next.String(), next.Next()
		return false, nil, nil
	})
	c := &Load{control: &control{client: client}, client: client, endpoints: 3, spare: firstSpare, changed: map[int]bool{}, came: map[string]bool{}}
	for i := range n {
		s, slice := member(i, c.endpoints)
		if _, err := c.create(t.Context(), s, slice); err != nil {
			t.Fatal(err)
		}
	}
	clear(c.came)
	if err := c.learn(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return c, client
}

// control makes replacements by the client of tests, at once.
type control struct {
	cluster.Control
	client *fake.Clientset
	made   int64
}

func (c *control) Replace(ctx context.Context, changes []cluster.Replacement, _ int) error {
	for _, r := range changes {
		slices := c.client.DiscoveryV1().EndpointSlices(r.Namespace)
		s, err := slices.Get(ctx, r.Slice, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.Endpoints[r.Endpoint].Addresses = []string{r.Address}
		if _, err := slices.Update(ctx, s, metav1.UpdateOptions{}); err != nil {
			return err
		}
		c.made++
	}
	return nil
}

func (c *control) Replaced(context.Context) (int64, error) { return c.made, nil }

// state is all there is: Services, and the endpoints of slices.
func state(t *testing.T, client *fake.Clientset) []string {
	t.Helper()
	var out []string
	services, err := client.CoreV1().Services(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range services.Items {
		out = append(out, "service "+s.Name+" "+s.Spec.ClusterIP)
	}
	all, err := client.DiscoveryV1().EndpointSlices(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Items {
		line := "slice " + s.Name + " of " + s.Labels[discovery.LabelServiceName]
		for _, e := range s.Endpoints {
			line += " " + e.Addresses[0]
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func TestRestoreMakesItWhatItWas(t *testing.T) {
	c, client := newLoad(t, 10)
	before := state(t, client)
	random := rand.New(rand.NewPCG(1, 1))
	if n, err := c.ChangeMembers(t.Context(), random, 1000, 5); n != 5 || err != nil {
		t.Fatalf("%d changed, %v, want 5", n, err)
	}
	if _, err := c.AddService(t.Context(), "newcomer-1"); err != nil {
		t.Fatal(err)
	}
	if during := state(t, client); slices.Equal(before, during) {
		t.Fatal("nothing was changed")
	}
	// The client of tests does not remove by label, so slices of newcomers are taken by hand.
	client.PrependReactor("delete-collection", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, client.Tracker().Delete(discovery.SchemeGroupVersion.WithResource("endpointslices"), namespace, "newcomer-1-v4")
	})
	if err := c.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := state(t, client); !slices.Equal(before, after) {
		t.Errorf("before and after:\n%v\n%v", before, after)
	}
}

func TestLoadBalancersGetAddresses(t *testing.T) {
	c, client := newLoad(t, 30)
	for _, i := range []int{7, 27} {
		s, err := client.CoreV1().Services(namespace).Get(t.Context(), memberName(i), metav1.GetOptions{})
		if err != nil || len(s.Status.LoadBalancer.Ingress) != 1 {
			t.Errorf("member %d has %v, %v, want an address", i, s.Status.LoadBalancer, err)
		}
	}
	if c.VIP(7) == c.VIP(27) || !c.VIP(7).IsValid() {
		t.Errorf("members are at %s and %s", c.VIP(7), c.VIP(27))
	}
}

func TestBigIsReplacedStepByStep(t *testing.T) {
	c, client := newLoad(t, 0)
	b, err := c.AddBig(t.Context(), "big")
	if err != nil {
		t.Fatal(err)
	}
	left := func() (old, all int) {
		found, err := client.DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range found.Items {
			for _, e := range s.Endpoints {
				all++
				if b.Old(netip.MustParseAddr(e.Addresses[0])) {
					old++
				}
			}
		}
		return old, all
	}
	for n := range BigSteps {
		if old, all := left(); old != BigEndpoints-n*perStep || all != BigEndpoints {
			t.Fatalf("after %d steps %d of %d endpoints are old", n, old, all)
		}
		if err := b.Step(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if old, _ := left(); old != 0 {
		t.Errorf("after all steps %d endpoints are old", old)
	}
}

func TestProbeGetsAnEndpointThatNobodyHad(t *testing.T) {
	c, client := newLoad(t, 0)
	if _, err := c.create(t.Context(), service(probeName(0)), slice(probeName(0), probeName(0), c.spares(1)...)); err != nil {
		t.Fatal(err)
	}
	first, err := c.ChangeProbe(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.ChangeProbe(t.Context(), 0)
	if err != nil || first == second {
		t.Errorf("two changes give %s and %s, %v", first, second, err)
	}
	s, err := client.DiscoveryV1().EndpointSlices(namespace).Get(t.Context(), "probe-0-v4", metav1.GetOptions{})
	if err != nil || len(s.Endpoints) != 1 || s.Endpoints[0].Addresses[0] != second.String() {
		t.Errorf("the probe has %v, %v, want %s alone", s.Endpoints, err, second)
	}
}

// An API server ends a watch after half an hour or more: the next one goes on where it was.
func TestArrivalsOutliveAWatch(t *testing.T) {
	c, client := newLoad(t, 0)
	client.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &discovery.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
	})
	watches := make(chan *watch.FakeWatcher, 2)
	client.PrependWatchReactor("endpointslices", func(clienttesting.Action) (bool, watch.Interface, error) {
		w := watch.NewFake()
		watches <- w
		return true, w, nil
	})
	a, err := c.WatchProbes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, spare := range c.spares(2) {
		addr := topology.Endpoint(spare)
		s := slice(probeName(0), probeName(0), spare)
		s.ResourceVersion = strconv.Itoa(2 + i)
		var w *watch.FakeWatcher
		select {
		case w = <-watches:
		case <-ctx.Done():
			t.Fatalf("there is no watch %d", i+1)
		}
		w.Add(s)
		if _, err := a.At(ctx, addr); err != nil {
			t.Fatalf("by watch %d: %v", i+1, err)
		}
		w.Stop()
	}
}

// TestAgainstAnAPIServer is the same with a real one.
func TestAgainstAnAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an API server: make e2e WHAT=kube runs it")
	}
	c, err := Open(t.Context(), 2, io.Discard)
	if err != nil {
		t.Skip("needs kube-apiserver and etcd: go run ./e2e/kube/build makes them once: ", err)
	}
	defer func() { _ = c.Close() }()
	for _, n := range []int{10, 30} {
		if err := c.Grow(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if at, err := c.KubernetesVIP(t.Context()); err != nil || at != netip.MustParseAddrPort("10.96.0.1:443") {
		t.Errorf("the API server's Service is at %s, %v", at, err)
	}
	slice, err := c.client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || len(slice.Endpoints) != 1 || slice.Endpoints[0].Addresses[0] != topology.BackendsAddr {
		t.Errorf("its endpoint is %v, %v, want the farm", slice.Endpoints, err)
	}
	if _, err := c.AddBig(t.Context(), "big"); err != nil {
		t.Fatal(err)
	}
	if err := c.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := c.client.DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{})
	if want := 30 + Probes + 1; err != nil || len(all.Items) != want {
		t.Errorf("%d slices, %v, want %d", len(all.Items), err, want)
	}
}

// TestKubernetesVIPIsAwaited: a server that is ready may not have written its own Service yet.
func TestKubernetesVIPIsAwaited(t *testing.T) {
	c, client := newLoad(t, 0)
	own := service("kubernetes")
	own.Namespace, own.Spec.ClusterIP = "default", "10.96.0.1"
	requests := 0
	client.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		requests++
		if requests < 3 {
			return true, nil, apierrors.NewNotFound(corev1.Resource("services"), own.Name)
		}
		return true, own, nil
	})
	if got, err := c.KubernetesVIP(t.Context()); err != nil || !got.IsValid() || requests != 3 {
		t.Errorf("the Service is at %s, %v, after %d requests, want an address after 3", got, err, requests)
	}
}
