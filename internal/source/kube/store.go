package kube

import (
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// store is what a reflector fills: values go through it to the Sink, names stay.
// One reflector uses it, from one goroutine, but for arrive.
type store struct {
	*kind
	source *Source
	sink   source.Sink

	mu       sync.Mutex
	names    map[cache.ObjectName]struct{}
	replaced bool // a whole list came
}

var _ cache.ReflectorStore = (*store)(nil)

func newStore(k *kind, s *Source, sink source.Sink) *store {
	return &store{kind: k, source: s, sink: sink, names: map[cache.ObjectName]struct{}{}}
}

// arrive delivers an object of the first list while the list is still coming. Names
// that are not in the end of it are taken back by Replace.
func (s *store) arrive(c *converted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.replaced {
		s.deliver(c)
	}
}

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error {
	c, err := s.object(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver(c)
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	c, err := s.object(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.names, c.name())
	s.remove(s.sink, c.name())
	return nil
}

// Replace implements cache.ReflectorStore: it delivers a complete list, and takes
// back what is not in it, what has arrived of the first list included. A list with
// something strange in it changes nothing more than that.
func (s *store) Replace(list []any, _ string) error {
	names := make(map[cache.ObjectName]struct{}, len(list))
	for _, obj := range list {
		c, err := s.object(obj)
		if err != nil {
			return err
		}
		names[c.name()] = struct{}{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.names
	s.names, s.replaced = names, true
	for _, obj := range list {
		s.set(s.sink, obj.(*converted).value)
	}
	for name := range before {
		if _, still := names[name]; !still {
			s.remove(s.sink, name)
		}
	}
	s.source.synced(s.name)
	s.source.report(s.sink)
	return nil
}

// Resync implements cache.ReflectorStore; nothing is ever delivered twice.
func (s *store) Resync() error { return nil }

func (s *store) deliver(c *converted) {
	s.names[c.name()] = struct{}{}
	s.set(s.sink, c.value)
}

func (s *store) object(obj any) (*converted, error) {
	c, ok := obj.(*converted)
	if !ok || c.value == nil {
		return nil, fmt.Errorf("a %T among the %s", obj, s.name)
	}
	return c, nil
}
