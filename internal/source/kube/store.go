package kube

import (
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// store is what a reflector fills: objects go through it to the Sink, names stay.
// One reflector uses it, from one goroutine.
type store struct {
	kind   kind
	source *Source
	sink   source.Sink
	names  map[cache.ObjectName]struct{}
}

var (
	_ cache.ReflectorStore         = (*store)(nil)
	_ cache.ReflectorBookmarkStore = (*store)(nil)
	_ cache.TransformingStore      = (*store)(nil)
)

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error {
	c, err := s.convert(obj)
	if err != nil {
		return err
	}
	s.set(c)
	s.source.heard(s.kind.name, false)
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	name, err := nameOf(obj)
	if err != nil {
		return err
	}
	delete(s.names, name)
	s.kind.remove(s.sink, name)
	s.source.heard(s.kind.name, false)
	return nil
}

// Replace implements cache.ReflectorStore: it delivers a complete list, and takes
// back what is not in it. A list with something strange in it changes nothing.
func (s *store) Replace(list []any, _ string) error {
	for i, obj := range list {
		c, err := s.convert(obj)
		if err != nil {
			return err
		}
		list[i] = c // the list is ours, and its objects may be most of the memory
	}
	before := s.names
	s.names = make(map[cache.ObjectName]struct{}, len(list))
	for _, obj := range list {
		s.set(obj.(*converted))
	}
	for name := range before {
		if _, still := s.names[name]; !still {
			s.kind.remove(s.sink, name)
		}
	}
	if s.source.heard(s.kind.name, true) {
		s.source.complete(s.sink)
	}
	return nil
}

// Resync implements cache.ReflectorStore; nothing is ever delivered twice.
func (s *store) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore: a quiet watch lives.
func (s *store) Bookmark(string) error {
	s.source.heard(s.kind.name, false)
	return nil
}

// Transformer implements cache.TransformingStore: a streamed list is gathered in
// client-go before it is complete, and need not be gathered whole.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.convert(obj) }
}

// convert reads an object; what was converted already stays as it is.
func (s *store) convert(obj any) (*converted, error) {
	if c, ok := obj.(*converted); ok {
		return c, nil
	}
	name, err := nameOf(obj)
	if err != nil {
		return nil, err
	}
	value := s.kind.convert(obj)
	if value == nil {
		return nil, fmt.Errorf("object %s among the %s is a %T", name, s.kind.name, obj)
	}
	c := &converted{value: value}
	c.meta.Namespace, c.meta.Name = name.Namespace, name.Name
	return c, nil
}

func (s *store) set(c *converted) {
	s.names[cache.ObjectName{Namespace: c.meta.Namespace, Name: c.meta.Name}] = struct{}{}
	s.kind.set(s.sink, c.value)
}

func nameOf(obj any) (cache.ObjectName, error) {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return name, fmt.Errorf("object of the API without a name: %w", err)
	}
	return name, nil
}

// ended tells errors that are the ordinary end of a watch: the server closes each
// after some minutes, and has forgotten versions that are too old.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}
