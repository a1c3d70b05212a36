package kube

import (
	"errors"
	"fmt"
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// converted is what a reflector sees instead of an object of the API: its name and
// version, by which client-go tells objects apart, and what is read of it. It never
// changes.
type converted struct {
	meta  metav1.ObjectMeta
	value any // nil for a bookmark
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (c *converted) GetObjectMeta() metav1.Object { return &c.meta }

// GetObjectKind implements runtime.Object.
func (c *converted) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (c *converted) DeepCopyObject() runtime.Object { return c }

func (c *converted) name() cache.ObjectName {
	return cache.ObjectName{Namespace: c.meta.Namespace, Name: c.meta.Name}
}

// list is a list of converted objects.
type list struct {
	metav1.ListMeta
	Items []runtime.Object
}

// GetObjectKind implements runtime.Object.
func (l *list) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (l *list) DeepCopyObject() runtime.Object { return l }

// errStrange: the answer cannot have come from an API server.
var errUnexpectedObject = errors.New("not the requested object")

// convert reads one object.
func (k *kind) convert(obj runtime.Object) (*converted, error) {
	in, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("%w: %T among the %s: %w", errUnexpectedObject, obj, k.name, err)
	}
	if in.GetName() == "" {
		return nil, fmt.Errorf("%w: %T without a name among the %s", errUnexpectedObject, obj, k.name)
	}
	c := &converted{value: k.read(obj)}
	if c.value == nil {
		return nil, fmt.Errorf("%w: %s/%s among the %s is a %T", errUnexpectedObject, in.GetNamespace(), in.GetName(), k.name, obj)
	}
	c.meta.Namespace, c.meta.Name, c.meta.ResourceVersion = intern(in.GetNamespace()), in.GetName(), in.GetResourceVersion()
	return c, nil
}

// convertList takes a list apart while it reads it, so that the objects, which are
// most of the memory at a start, can go one by one.
func (k *kind) convertList(in runtime.Object) (*list, error) {
	about, err := meta.ListAccessor(in)
	if err != nil {
		return nil, fmt.Errorf("%w: %T for a list of %s: %w", errUnexpectedObject, in, k.name, err)
	}
	// Any JSON object at all is decoded into an empty list, and an empty list would delete
	// everything. Every list of an API server has a version.
	if about.GetResourceVersion() == "" {
		return nil, fmt.Errorf("%w: a list of %s without a version", errUnexpectedObject, k.name)
	}
	out := &list{ListMeta: metav1.ListMeta{
		ResourceVersion: about.GetResourceVersion(), Continue: about.GetContinue(), RemainingItemCount: about.GetRemainingItemCount(),
	}}
	err = k.each(in, func(obj runtime.Object) error {
		c, err := k.convert(obj)
		out.Items = append(out.Items, c)
		return err
	})
	return out, err
}

// bookmark returns the relevant part of one: its version, and whether it ends a streamed list. With
// no version the next watch would begin anywhere, and miss what was deleted until then.
func bookmark(obj runtime.Object) (c *converted, endsList bool, err error) {
	in, err := meta.Accessor(obj)
	if err != nil {
		return nil, false, fmt.Errorf("%w: bookmark of type %T: %w", errUnexpectedObject, obj, err)
	}
	if in.GetResourceVersion() == "" {
		return nil, false, fmt.Errorf("%w: a bookmark without a version", errUnexpectedObject)
	}
	c = &converted{}
	c.meta.ResourceVersion = in.GetResourceVersion()
	if in.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		c.meta.Annotations, endsList = map[string]string{metav1.InitialEventsAnnotationKey: "true"}, true
	}
	return c, endsList, nil
}

// one returns the one copy of a string that many objects have: names of nodes,
// zones, namespaces and ports are few, and written in every endpoint.
func intern(s string) string { return unique.Make(s).Value() }

func service(s model.Service) model.Service {
	s.ID.Namespace, s.Type, s.ProxyName = intern(s.ID.Namespace), intern(s.Type), intern(s.ProxyName)
	for i := range s.Ports {
		s.Ports[i].Name = intern(s.Ports[i].Name)
	}
	return s
}

func slice(s model.Slice) model.Slice {
	s.ID.Namespace, s.Service.Namespace = intern(s.ID.Namespace), intern(s.Service.Namespace)
	for i := range s.Ports {
		s.Ports[i].Name = intern(s.Ports[i].Name)
	}
	var seen []*model.Hints
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Node = intern(e.Node)
		if e.Hints != nil {
			e.Hints = hints(e.Hints, &seen)
		}
	}
	return s
}

// fewHints is how many different ones of a slice are kept: a cluster has a few
// zones, and hints for nodes are as many as nodes.
const fewHints = 8

// hints returns the one copy of hints that many endpoints of a slice have.
func hints(h *model.Hints, seen *[]*model.Hints) *model.Hints {
	for _, s := range *seen {
		if slices.Equal(s.Zones, h.Zones) && slices.Equal(s.Nodes, h.Nodes) {
			return s
		}
	}
	for _, list := range [][]string{h.Zones, h.Nodes} {
		for i := range list {
			list[i] = intern(list[i])
		}
	}
	if len(*seen) < fewHints {
		*seen = append(*seen, h)
	}
	return h
}

// node keeps of another Node nothing but its addresses, and its weight for
// its endpoints.
func (s *Source) node(n model.Node) model.Node {
	if n.Name == s.opts.Node {
		return n
	}
	return model.Node{Name: n.Name, Addresses: n.Addresses, Weight: n.Weight, BadAnnotations: n.BadAnnotations}
}
