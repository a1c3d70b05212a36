package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// nodesAnswer is a client whose lists of Nodes do something else first.
type nodesAnswer struct {
	kubernetes.Interface
	first func(ctx context.Context) error
}

// IsWatchListSemanticsUnSupported repeats the answer of the fake.
func (c *nodesAnswer) IsWatchListSemanticsUnSupported() bool { return true }

func (c *nodesAnswer) CoreV1() corev1.CoreV1Interface {
	return nodesAnswerCore{c.Interface.CoreV1(), c.first}
}

type nodesAnswerCore struct {
	corev1.CoreV1Interface
	first func(ctx context.Context) error
}

func (c nodesAnswerCore) Nodes() corev1.NodeInterface {
	return nodesAnswerNodes{c.CoreV1Interface.Nodes(), c.first}
}

type nodesAnswerNodes struct {
	corev1.NodeInterface
	first func(ctx context.Context) error
}

func (c nodesAnswerNodes) List(ctx context.Context, o metav1.ListOptions) (*v1.NodeList, error) {
	if err := c.first(ctx); err != nil {
		return nil, err
	}
	return c.NodeInterface.List(ctx, o)
}

// after waits before an answer.
func after(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// firstLists is when the large kinds were first listed in all namespaces.
type firstLists struct {
	mu sync.Mutex
	at map[string]time.Duration // since the start
}

func noteLists(client *fake.Clientset) *firstLists {
	begin, f := time.Now(), &firstLists{at: map[string]time.Duration{}}
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		kind := a.GetResource().Resource
		if _, before := f.at[kind]; !before && kind != "nodes" && everywhere(a) {
			f.at[kind] = time.Since(begin)
		}
		return false, nil, nil
	})
	return f
}

// want fails the test unless both kinds were listed at that time.
func (f *firstLists) want(t *testing.T, at time.Duration) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, kind := range []string{"services", "endpointslices"} {
		if got, listed := f.at[kind]; !listed || got != at {
			t.Errorf("%s: listed %t, after %s, want after %s", kind, listed, got, at)
		}
	}
}

// Nodes are listed first, and the large lists begin at the moment they are known. A list of
// Nodes that is slow, or fails again and again, holds up the others for two seconds and no
// longer.
func TestNodesFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes func(context.Context) error
		want  time.Duration
	}{
		"quick": {after(300 * time.Millisecond), 300 * time.Millisecond},
		"slow":  {after(time.Minute), 2 * time.Second},
		"fails": {func(context.Context) error { return errors.New("etcd is on holiday") }, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := fake.NewClientset(web("10.96.0.10"), node("here", "192.168.0.1"))
				lists := noteLists(objects)
				_, out := follow(t, kube.Of(&nodesAnswer{objects, tt.nodes}), zap.NewNop(), kube.Options{Node: "here"})
				time.Sleep(tt.want + time.Millisecond)
				synctest.Wait()
				lists.want(t, tt.want)
				if have := out.String(); !strings.Contains(have, "service shop/web") {
					t.Errorf("have %s", have)
				}
			})
		})
	}
}

// The API server's own Service is listed separately and served before the large lists begin. Then the
// large lists are believed, and it is not listed again.
func TestAPIServersOwnServiceFirst(t *testing.T) {
	s := newServer(t)
	own, slice := wire("kubernetes", "10.96.0.1", "5"), webSlice("192.0.2.1")
	own.Namespace, slice.Namespace, slice.Name = "default", "default", "kubernetes"
	slice.Labels[discoveryv1.LabelServiceName] = "kubernetes"
	s.play("early services", listOf("9", own))
	s.play("early endpointslices", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(discoveryv1.EndpointSliceList{
			TypeMeta: typeOf("discovery.k8s.io/v1", "EndpointSliceList"), ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []discoveryv1.EndpointSlice{*slice},
		})
	})
	begin, newer := make(chan struct{}), own.DeepCopy()
	newer.Spec.ClusterIP, newer.ResourceVersion = "10.96.0.2", "12"
	hold := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-begin:
		case <-r.Context().Done():
		}
	}
	s.play("services", then(hold, events("ADDED", newer), s.end("20")), events("ERROR", status(410, metav1.StatusReasonExpired, "too old")), s.stream("30", newer))
	s.play("endpointslices", then(hold, s.stream("20")))
	src, out, logs := s.follow("{}", (*kube.Source).AwaitFirst)
	expect(t, out, "state coming", "service default/kubernetes = kube[10.96.0.1]", "slice default/kubernetes = kube of default/kubernetes: 1")
	close(begin)
	expect(t, out, "state complete", "service default/kubernetes = kube[10.96.0.2]")
	until(t, "the second list", func() bool { return len(s.requests("services")) > 2 })
	until(t, "the end of it", func() bool { return src.Progress()["services"].Err == nil })
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, want := range map[string]url.Values{
		"early services":       {"resourceVersion": {"0"}, "fieldSelector": {"spec.clusterIP!=None,metadata.name=kubernetes"}, "labelSelector": {"!service.kubernetes.io/service-proxy-name"}},
		"early endpointslices": {"resourceVersion": {"0"}, "labelSelector": {"!service.kubernetes.io/headless,kubernetes.io/service-name=kubernetes"}},
	} {
		if diff := cmp.Diff([]url.Values{want}, s.asked[kind]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
	if logs.Len() > 0 {
		t.Errorf("log %v", logs.All())
	}
}

// A server that does not answer the early questions costs the start two seconds; one that
// refuses them, or sends nonsense, costs nothing. Nothing is logged.
func TestEarlyQuestionsAreBestEffort(t *testing.T) {
	t.Run("silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			objects := fake.NewClientset(web("10.96.0.10"))
			lists, client := noteLists(objects), &hanging{Interface: objects}
			client.verb.Store("early list")
			bubble(t, kube.Of(client), zap.NewNop())
			time.Sleep(2001 * time.Millisecond)
			synctest.Wait()
			lists.want(t, 2*time.Second)
		})
	})
	for name, answer := range map[string]http.HandlerFunc{
		"forbidden": fail(403, metav1.StatusReasonForbidden, "not in this namespace"),
		"nonsense":  text(200, "text/html", "<html>please sign in</html>"),
		"no list":   text(200, "application/json", `{"hello": "world"}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.play("early services", answer)
			s.play("early endpointslices", answer)
			s.play("services", s.stream("9", wire("web", "10.96.0.1", "5")))
			src, out, logs := s.follow("{}")
			expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]")
			if p := src.Progress()["services"]; p.Err != nil || logs.Len() > 0 {
				t.Errorf("progress %+v, log %v", p, logs.All())
			}
		})
	}
}
