package kube

import (
	"context"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// API is what a Source reads. Client is the real one.
type API interface {
	Services(namespace string) Resource[*corev1.ServiceList]
	EndpointSlices(namespace string) Resource[*discoveryv1.EndpointSliceList]
	Nodes() Resource[*corev1.NodeList]
}

// Resource is the objects of one kind, in one namespace or in all; L is their list.
type Resource[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Client speaks to an API server, of the three groups of its API that an agent needs. A clientset
// of client-go includes the types of all sixty API groups and registers each with a scheme at the
// start of the program. That takes a third of the program size and of its memory.
type Client struct {
	core, discovery, events rest.Interface
}

// known are the types that a Client reads and writes; options writes those of a request
// into its URL.
var (
	known   = runtime.NewScheme()
	codecs  = serializer.NewCodecFactory(known)
	options = runtime.NewParameterCodec(known)
)

func init() {
	metav1.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, eventsv1.AddToScheme} {
		if err := add(known); err != nil {
			panic(err) // two types of one name, which no test would pass
		}
	}
}

// newClient makes a client whose groups share one connection and one bound of requests.
func newClient(config *rest.Config, shared *http.Client) (*Client, error) {
	if config.QPS > 0 && config.Burst <= 0 {
		return nil, errors.New("a bound of requests a second (QPS) needs a Burst above 0")
	}
	if config.QPS > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	}
	var c Client
	for _, group := range []struct {
		client  *rest.Interface
		version schema.GroupVersion
		path    string
	}{
		{&c.core, corev1.SchemeGroupVersion, "/api"},
		{&c.discovery, discoveryv1.SchemeGroupVersion, "/apis"},
		{&c.events, eventsv1.SchemeGroupVersion, "/apis"},
	} {
		own := rest.CopyConfig(config)
		own.GroupVersion, own.APIPath = &group.version, group.path
		own.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(known, codecs).WithoutConversion()
		client, err := rest.RESTClientForConfigAndClient(own, shared)
		if err != nil {
			return nil, err
		}
		*group.client = client
	}
	return &c, nil
}

// Services are those of a namespace, or of all ("").
func (c *Client) Services(namespace string) Resource[*corev1.ServiceList] {
	return resource[*corev1.ServiceList]{c.core, namespace, "services", func() *corev1.ServiceList { return &corev1.ServiceList{} }}
}

// EndpointSlices are those of a namespace, or of all ("").
func (c *Client) EndpointSlices(namespace string) Resource[*discoveryv1.EndpointSliceList] {
	return resource[*discoveryv1.EndpointSliceList]{c.discovery, namespace, "endpointslices", func() *discoveryv1.EndpointSliceList { return &discoveryv1.EndpointSliceList{} }}
}

// Nodes are those of the cluster.
func (c *Client) Nodes() Resource[*corev1.NodeList] {
	return resource[*corev1.NodeList]{c.core, "", "nodes", func() *corev1.NodeList { return &corev1.NodeList{} }}
}

// ListServices lists Services once.
func (c *Client) ListServices(ctx context.Context, namespace string, o metav1.ListOptions) (*corev1.ServiceList, error) {
	return c.Services(namespace).List(ctx, o)
}

// CreateEvent writes an Event into its namespace.
func (c *Client) CreateEvent(ctx context.Context, e *eventsv1.Event) error {
	return c.events.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
}

// PatchEvent changes an Event by a strategic merge patch.
func (c *Client) PatchEvent(ctx context.Context, namespace, name string, patch []byte) error {
	return c.events.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("events").Name(name).Body(patch).Do(ctx).Error()
}

// resource is the objects of one kind of a Client.
type resource[L runtime.Object] struct {
	client          rest.Interface
	namespace, name string
	empty           func() L
}

// List implements Resource.
func (r resource[L]) List(ctx context.Context, o metav1.ListOptions) (L, error) {
	list := r.empty()
	return list, r.get(o).Do(ctx).Into(list)
}

// Watch implements Resource.
func (r resource[L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return r.get(o).Watch(ctx)
}

func (r resource[L]) get(o metav1.ListOptions) *rest.Request {
	q := r.client.Get().NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.name).VersionedParams(&o, options)
	if o.TimeoutSeconds != nil {
		q = q.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	return q
}
