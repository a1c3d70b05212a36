package file

import (
	"cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// origin marks everything that this package delivers.
const origin = model.FromFile

// kind orders the objects as they are delivered: a Service comes last, when its
// endpoints and the node are known.
type kind uint8

const (
	kindNode kind = iota
	kindSlice
	kindService
)

// key names an object over all files.
type key struct {
	kind            kind
	namespace, name string
}

// String prints kind, namespace and name the way kubectl speaks of objects.
func (k key) String() string {
	switch k.kind {
	case kindNode:
		return "Node " + k.name
	case kindSlice:
		return "EndpointSlice " + k.namespace + "/" + k.name
	}
	return "Service " + k.namespace + "/" + k.name
}

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.kind, o.kind), cmp.Compare(k.namespace, o.namespace), cmp.Compare(k.name, o.name))
}

// delete tells the sink that the object is gone.
func (k key) delete(sink source.Sink) {
	switch k.kind {
	case kindNode:
		sink.DeleteNode(origin, k.name)
	case kindSlice:
		sink.DeleteSlice(model.SliceID{Origin: origin, Namespace: k.namespace, Name: k.name})
	case kindService:
		sink.DeleteService(model.ServiceID{Origin: origin, Namespace: k.namespace, Name: k.name})
	}
}

// object is one converted manifest and its place in its file.
type object struct {
	key            key
	document, line int
	value          value
	// newer are the fields that are newer than our types.
	newer []fault
}

// value is one of the three things a Sink takes.
type value interface {
	set(source.Sink)
	equal(value) bool
	problems() []string
}

type (
	serviceValue struct{ model.Service }
	sliceValue   struct{ model.Slice }
	nodeValue    struct{ model.Node }
)

func (v *serviceValue) set(sink source.Sink) { sink.SetService(v.Service) }
func (v *sliceValue) set(sink source.Sink)   { sink.SetSlice(v.Slice) }
func (v *nodeValue) set(sink source.Sink)    { sink.SetNode(origin, v.Node) }

func (v *serviceValue) problems() []string { return v.Problems }
func (v *sliceValue) problems() []string   { return v.Problems }
func (v *nodeValue) problems() []string    { return v.Problems }

func (v *serviceValue) equal(o value) bool {
	w, ok := o.(*serviceValue)
	return ok && v.Equal(w.Service)
}

func (v *sliceValue) equal(o value) bool {
	w, ok := o.(*sliceValue)
	return ok && v.Equal(w.Slice)
}

func (v *nodeValue) equal(o value) bool {
	w, ok := o.(*nodeValue)
	return ok && v.Equal(w.Node)
}
