package kube

import (
	"context"
	"fmt"

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

// kind is one kind of object: how it is requested, and how an object and its name are handled.
type kind struct {
	name string
	// labels and fields are the selectors.
	labels, fields string
	list           func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	watch          func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	// read makes a value of model; nil for what is not an object of the kind.
	read func(obj runtime.Object) any
	// each visits the objects of a list and takes them out of it.
	each   func(list runtime.Object, visit func(runtime.Object) error) error
	set    func(sink source.Sink, value any)
	remove func(sink source.Sink, name cache.ObjectName)
}

// Selectors of kube-proxy's watches. They leave out Services that another proxy serves,
// headless Services, and the slices of the latter.
const (
	ourServices = "!service.kubernetes.io/service-proxy-name"
	withAddress = "spec.clusterIP!=None"
	ourSlices   = "!" + corev1.IsHeadlessService
)

// nodes is the kind without which no Service is served, because the addresses of Nodes must
// be known before any address is bound (internal/DECISIONS.md, Addresses of other machines).
const nodes = "nodes"

// watched are the kinds that are followed.
func (s *Source) watched() []kind {
	return []kind{s.services(metav1.NamespaceAll), s.slices(metav1.NamespaceAll), s.nodes()}
}

func (s *Source) services(namespace string) kind {
	k := ask(s.api.Services(namespace), func(l *corev1.ServiceList) []corev1.Service { return l.Items })
	k.name, k.labels, k.fields = "services", ourServices, withAddress
	k.read = func(obj runtime.Object) any {
		if in, ok := obj.(*corev1.Service); ok {
			return service(source.Service(model.FromKube, in))
		}
		return nil
	}
	k.set = func(sink source.Sink, value any) { sink.SetService(value.(model.Service)) }
	k.remove = func(sink source.Sink, n cache.ObjectName) {
		sink.DeleteService(model.ServiceID{Origin: model.FromKube, Namespace: n.Namespace, Name: n.Name})
	}
	return k
}

func (s *Source) slices(namespace string) kind {
	k := ask(s.api.EndpointSlices(namespace), func(l *discoveryv1.EndpointSliceList) []discoveryv1.EndpointSlice { return l.Items })
	k.name, k.labels = "endpointslices", ourSlices
	k.read = func(obj runtime.Object) any {
		if in, ok := obj.(*discoveryv1.EndpointSlice); ok {
			return slice(source.Slice(model.FromKube, in))
		}
		return nil
	}
	k.set = func(sink source.Sink, value any) { sink.SetSlice(value.(model.Slice)) }
	k.remove = func(sink source.Sink, n cache.ObjectName) {
		sink.DeleteSlice(model.SliceID{Origin: model.FromKube, Namespace: n.Namespace, Name: n.Name})
	}
	return k
}

func (s *Source) nodes() kind {
	k := ask(s.api.Nodes(), func(l *corev1.NodeList) []corev1.Node { return l.Items })
	k.name = nodes
	if !s.opts.AllNodes {
		k.fields = fields.OneTermEqualSelector(metav1.ObjectNameField, s.opts.Node).String()
	}
	k.read = func(obj runtime.Object) any {
		if in, ok := obj.(*corev1.Node); ok {
			return s.node(source.Node(in))
		}
		return nil
	}
	if s.opts.AllNodes && s.opts.ManyNodes > 0 {
		s.limitNodes(&k)
	}
	k.set = func(sink source.Sink, value any) { sink.SetNode(model.FromKube, value.(model.Node)) }
	k.remove = func(sink source.Sink, n cache.ObjectName) { sink.DeleteNode(model.FromKube, n.Name) }
	return k
}

// ask makes a kind of a resource; items are those of its list.
func ask[L runtime.Object, T any, P interface {
	*T
	runtime.Object
}](of Resource[L], items func(L) []T) kind {
	return kind{
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of.List(ctx, o) },
		watch: of.Watch,
		each: func(list runtime.Object, visit func(runtime.Object) error) error {
			typed, ok := list.(L)
			if !ok {
				return fmt.Errorf("%w: a %T instead of a list of %T", errUnexpectedObject, list, *new(T))
			}
			all := items(typed)
			for i := range all {
				if err := visit(P(&all[i])); err != nil {
					return err
				}
				all[i] = *new(T)
			}
			return nil
		},
	}
}
