package kube_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// requests is a server that writes down what it is asked, and answers with objects in the
// form that the client prefers.
type requests struct {
	*httptest.Server
	asked  []string
	answer map[string]runtime.Object // by path
}

func newRequests(t *testing.T, answer map[string]runtime.Object) *requests {
	r := &requests{answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		r.asked = append(r.asked, fmt.Sprintf("%s %s accept %s type %s agent %s body %q", q.Method, q.URL, q.Header.Get("Accept"), q.Header.Get("Content-Type"), q.UserAgent(), body))
		accepted, _, _ := strings.Cut(q.Header.Get("Accept"), ",")
		info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), strings.TrimSuffix(accepted, ";stream=watch"))
		if !ok {
			t.Errorf("no type %q", accepted)
		}
		w.Header().Set("Content-Type", info.MediaType)
		if q.URL.Query().Get("watch") != "" {
			w.Header().Set("Content-Type", accepted)
			return // a watch that ends at once
		}
		obj := r.answer[q.URL.Path]
		if err := scheme.Codecs.EncoderForVersion(info.Serializer, versions).Encode(obj, w); err != nil {
			t.Errorf("%s: %v", q.URL, err)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

var versions = schema.GroupVersions{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion}

// Client asks what a clientset of client-go asks, byte for byte, and reads the same out of
// the answers.
func TestClientAsksAsAClientsetDoes(t *testing.T) {
	event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.1"}, Note: "x", EventTime: metav1.NewMicroTime(time.Unix(1, 0))}
	services := &corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, Items: []corev1.Service{*web("10.96.0.1")}}
	answers := map[string]runtime.Object{
		"/api/v1/services":                                         services,
		"/api/v1/namespaces/shop/services":                         services,
		"/api/v1/nodes":                                            &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: []corev1.Node{*node("here", "192.168.0.1")}},
		"/apis/discovery.k8s.io/v1/endpointslices":                 &discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, Items: []discoveryv1.EndpointSlice{*webSlice("10.244.0.1")}},
		"/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices": &discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}},
		"/apis/events.k8s.io/v1/namespaces/shop/events":            &eventsv1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"}},
		"/apis/events.k8s.io/v1/namespaces/shop/events/web.1":      &eventsv1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"}},
	}
	few := metav1.ListOptions{LabelSelector: "!a,b=c", FieldSelector: "metadata.name=web", ResourceVersion: "0", Limit: 1}
	long := metav1.ListOptions{ResourceVersion: "7", AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](300), SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	patch := []byte(`{"series":{"count":2}}`)
	for _, form := range []string{"", runtime.ContentTypeJSON} {
		for _, tt := range []struct {
			name string
			ours func(context.Context, *kube.Client) (any, error)
			want func(context.Context, kubernetes.Interface) (any, error)
		}{
			{"list services", func(ctx context.Context, c *kube.Client) (any, error) { return c.Services("").List(ctx, few) },
				func(ctx context.Context, c kubernetes.Interface) (any, error) {
					return c.CoreV1().Services("").List(ctx, few)
				}},
			{"list services of a namespace", func(ctx context.Context, c *kube.Client) (any, error) { return c.ListServices(ctx, "shop", few) },
				func(ctx context.Context, c kubernetes.Interface) (any, error) {
					return c.CoreV1().Services("shop").List(ctx, few)
				}},
			{"list slices", func(ctx context.Context, c *kube.Client) (any, error) { return c.EndpointSlices("").List(ctx, long) },
				func(ctx context.Context, c kubernetes.Interface) (any, error) {
					return c.DiscoveryV1().EndpointSlices("").List(ctx, long)
				}},
			{"list slices of a namespace", func(ctx context.Context, c *kube.Client) (any, error) { return c.EndpointSlices("shop").List(ctx, few) },
				func(ctx context.Context, c kubernetes.Interface) (any, error) {
					return c.DiscoveryV1().EndpointSlices("shop").List(ctx, few)
				}},
			{"list nodes", func(ctx context.Context, c *kube.Client) (any, error) { return c.Nodes().List(ctx, few) },
				func(ctx context.Context, c kubernetes.Interface) (any, error) {
					return c.CoreV1().Nodes().List(ctx, few)
				}},
			{"watch services", func(ctx context.Context, c *kube.Client) (any, error) {
				return drained(c.Services("").Watch(ctx, long))
			},
				func(ctx context.Context, c kubernetes.Interface) (any, error) {
					return drained(c.CoreV1().Services("").Watch(ctx, long))
				}},
			{"watch slices of a namespace", func(ctx context.Context, c *kube.Client) (any, error) {
				return drained(c.EndpointSlices("shop").Watch(ctx, few))
			},
				func(ctx context.Context, c kubernetes.Interface) (any, error) {
					return drained(c.DiscoveryV1().EndpointSlices("shop").Watch(ctx, few))
				}},
			{"watch nodes", func(ctx context.Context, c *kube.Client) (any, error) { return drained(c.Nodes().Watch(ctx, long)) },
				func(ctx context.Context, c kubernetes.Interface) (any, error) {
					return drained(c.CoreV1().Nodes().Watch(ctx, long))
				}},
			{"create event", func(ctx context.Context, c *kube.Client) (any, error) { return nil, c.CreateEvent(ctx, event) },
				func(ctx context.Context, c kubernetes.Interface) (any, error) {
					_, err := c.EventsV1().Events("shop").Create(ctx, event, metav1.CreateOptions{})
					return nil, err
				}},
			{"patch event", func(ctx context.Context, c *kube.Client) (any, error) {
				return nil, c.PatchEvent(ctx, "shop", "web.1", patch)
			},
				func(ctx context.Context, c kubernetes.Interface) (any, error) {
					_, err := c.EventsV1().Events("shop").Patch(ctx, "web.1", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
					return nil, err
				}},
		} {
			t.Run(strings.TrimSuffix(tt.name+" "+form, " "), func(t *testing.T) {
				s := newRequests(t, answers)
				ours, err := kube.NewClient(kube.ClientOptions{Master: s.URL, ContentType: form, UserAgent: "test"})
				mustDo(t, err)
				config := &rest.Config{Host: s.URL, UserAgent: "test", ContentConfig: rest.ContentConfig{ContentType: form}}
				if form == "" {
					config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
				}
				theirs, err := kubernetes.NewForConfig(config)
				mustDo(t, err)
				want, err := tt.want(t.Context(), theirs)
				mustDo(t, err)
				got, err := tt.ours(t.Context(), ours)
				mustDo(t, err)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("answer (-clientset +ours):\n%s", diff)
				}
				if len(s.asked) != 2 || s.asked[0] != s.asked[1] {
					t.Errorf("asked\n\t%s", strings.Join(s.asked, "\n\t"))
				}
			})
		}
	}
}

// drained reads a watch to its end.
func drained(w watch.Interface, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	var all []watch.Event
	for e := range w.ResultChan() {
		all = append(all, e)
	}
	return all, nil
}

// The requests of all groups share one bound, as one program's do.
func TestClientBoundsRequestsOfAllGroups(t *testing.T) {
	s := newRequests(t, map[string]runtime.Object{
		"/api/v1/nodes": &corev1.NodeList{}, "/apis/discovery.k8s.io/v1/endpointslices": &discoveryv1.EndpointSliceList{},
	})
	c, err := kube.NewClient(kube.ClientOptions{Master: s.URL, QPS: 0.001, Burst: 2})
	mustDo(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, first := c.Nodes().List(ctx, metav1.ListOptions{})
	_, second := c.EndpointSlices("").List(ctx, metav1.ListOptions{})
	if first != nil || second != nil {
		t.Fatalf("within the bound: %v, %v", first, second)
	}
	_, err = c.Nodes().List(ctx, metav1.ListOptions{})
	if err == nil || !strings.Contains(err.Error(), "rate limiter") || len(s.asked) != 2 {
		t.Errorf("beyond it: %v, asked %s", err, slices.Clip(s.asked))
	}
	if _, err := kube.NewClient(kube.ClientOptions{Master: s.URL, QPS: 1, Burst: -1}); err == nil || !strings.Contains(err.Error(), "Burst above 0") {
		t.Errorf("a bound without room: %v", err)
	}
}
