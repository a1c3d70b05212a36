package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// kind is one kind of object: how the server is asked for it, and what becomes of
// an object and of its name.
type kind struct {
	name    string
	example runtime.Object
	lists   cache.ListerWatcher
	// convert makes a value of model; nil for what is not an object of the kind.
	convert func(obj any) any
	set     func(sink source.Sink, value any)
	remove  func(sink source.Sink, name cache.ObjectName)
}

// What the server leaves out for us (contract section 10): Services that another
// proxy serves, headless ones, and the slices of the latter.
const (
	ourServices = "!service.kubernetes.io/service-proxy-name"
	withAddress = "spec.clusterIP!=None"
	ourSlices   = "!" + corev1.IsHeadlessService
)

// watched are the kinds that are followed.
func (s *Source) watched() []kind { return []kind{s.services(), s.slices(), s.nodes()} }

func (s *Source) services() kind {
	return kind{
		name: "services", example: &corev1.Service{},
		lists: ask(s, s.client.CoreV1().Services(metav1.NamespaceAll), ourServices, withAddress),
		convert: func(obj any) any {
			if in, ok := obj.(*corev1.Service); ok {
				return service(source.Service(model.FromKube, in))
			}
			return nil
		},
		set: func(sink source.Sink, value any) { sink.SetService(value.(model.Service)) },
		remove: func(sink source.Sink, n cache.ObjectName) {
			sink.DeleteService(model.ServiceID{Origin: model.FromKube, Namespace: n.Namespace, Name: n.Name})
		},
	}
}

func (s *Source) slices() kind {
	return kind{
		name: "endpointslices", example: &discoveryv1.EndpointSlice{},
		lists: ask(s, s.client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll), ourSlices, ""),
		convert: func(obj any) any {
			if in, ok := obj.(*discoveryv1.EndpointSlice); ok {
				return slice(source.Slice(model.FromKube, in))
			}
			return nil
		},
		set: func(sink source.Sink, value any) { sink.SetSlice(value.(model.Slice)) },
		remove: func(sink source.Sink, n cache.ObjectName) {
			sink.DeleteSlice(model.SliceID{Origin: model.FromKube, Namespace: n.Namespace, Name: n.Name})
		},
	}
}

func (s *Source) nodes() kind {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, s.opts.Node).String()
	if s.opts.AllNodes {
		only = ""
	}
	return kind{
		name: "nodes", example: &corev1.Node{},
		lists: ask(s, s.client.CoreV1().Nodes(), "", only),
		convert: func(obj any) any {
			if in, ok := obj.(*corev1.Node); ok {
				return s.node(source.Node(in))
			}
			return nil
		},
		set:    func(sink source.Sink, value any) { sink.SetNode(model.FromKube, value.(model.Node)) },
		remove: func(sink source.Sink, n cache.ObjectName) { sink.DeleteNode(model.FromKube, n.Name) },
	}
}

// lister is a typed client of one kind, in all namespaces.
type lister[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// ask lists and watches by a client, with selectors.
func ask[L runtime.Object](s *Source, client lister[L], labels, fieldSet string) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = labels, fieldSet
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = labels, fieldSet
			return client.Watch(ctx, o)
		},
	}, s.client)
}
