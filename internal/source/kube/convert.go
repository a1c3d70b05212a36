package kube

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// converted stands for an object of the API between the wire and the Sink: its
// name, by which client-go tells objects apart, and what is read of it.
type converted struct {
	meta  metav1.ObjectMeta
	value any
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (c *converted) GetObjectMeta() metav1.Object { return &c.meta }

// one returns the one copy of a string that many objects have: names of nodes,
// zones, namespaces and ports are few, and written in every endpoint.
func one(s string) string { return unique.Make(s).Value() }

func service(s model.Service) model.Service {
	s.ID.Namespace = one(s.ID.Namespace)
	for i := range s.Ports {
		s.Ports[i].Name = one(s.Ports[i].Name)
	}
	return s
}

func slice(s model.Slice) model.Slice {
	s.ID.Namespace, s.Service.Namespace, s.Service.Name = one(s.ID.Namespace), one(s.Service.Namespace), one(s.Service.Name)
	for i := range s.Ports {
		s.Ports[i].Name = one(s.Ports[i].Name)
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Node = one(e.Node)
		each(e.ZoneHints)
		each(e.NodeHints)
	}
	return s
}

func each(list []string) {
	for i := range list {
		list[i] = one(list[i])
	}
}

// node keeps of another Node nothing but its addresses.
func (s *Source) node(n model.Node) model.Node {
	if n.Name == s.opts.Node {
		return n
	}
	return model.Node{Name: n.Name, Addresses: n.Addresses}
}
