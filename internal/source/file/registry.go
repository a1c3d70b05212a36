package file

import (
	"fmt"
	"slices"
	"sort"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// claim is an object as one file defines it.
type claim struct {
	file   string
	object *object
}

// registry settles which file's object is the one, and knows what the Sink has.
// Its work follows the size of a change, not the number of objects.
type registry struct {
	// claims are sorted by file, then by their place in it: the first one wins.
	claims map[key][]claim
	// sent has the values that the sink got last.
	sent map[key]value
	// touched keys may differ from what was sent.
	touched map[key]struct{}
	// shared keys have more than one claim.
	shared map[key]struct{}
}

func newRegistry() *registry {
	return &registry{
		claims:  map[key][]claim{},
		sent:    map[key]value{},
		touched: map[key]struct{}{},
		shared:  map[key]struct{}{},
	}
}

// replace exchanges what a file defines. It takes nothing from the sink yet.
func (r *registry) replace(file string, before, now []object) {
	for i := range before {
		r.drop(before[i].key, file)
	}
	for i := range now {
		r.add(now[i].key, claim{file, &now[i]})
	}
}

func (r *registry) drop(k key, file string) {
	list := slices.DeleteFunc(r.claims[k], func(c claim) bool { return c.file == file })
	r.keep(k, list)
}

func (r *registry) add(k key, c claim) {
	list := r.claims[k]
	// Behind those of the same file: there the order of the documents decides.
	i := sort.Search(len(list), func(i int) bool { return list[i].file > c.file })
	r.keep(k, slices.Insert(list, i, c))
}

func (r *registry) keep(k key, list []claim) {
	r.touched[k] = struct{}{}
	if len(list) > 0 {
		r.claims[k] = list
	} else {
		delete(r.claims, k)
	}
	if len(list) > 1 {
		r.shared[k] = struct{}{}
	} else {
		delete(r.shared, k)
	}
}

// flush sends the differences. Nodes, slices and services are set in this order and deleted in the
// opposite one, so that a Service is never without its endpoints. It returns how many objects
// changed and went.
func (r *registry) flush(sink source.Sink) (set, deleted int) {
	keys := make([]key, 0, len(r.touched))
	for k := range r.touched {
		keys = append(keys, k)
	}
	r.touched = map[key]struct{}{}
	slices.SortFunc(keys, key.compare)
	for _, k := range keys {
		if r.set(k, sink) {
			set++
		}
	}
	for _, k := range slices.Backward(keys) {
		if r.delete(k, sink) {
			deleted++
		}
	}
	return set, deleted
}

func (r *registry) set(k key, sink source.Sink) bool {
	list := r.claims[k]
	if len(list) == 0 {
		return false
	}
	v := list[0].object.value
	if old, ok := r.sent[k]; ok && old.equal(v) {
		return false
	}
	r.sent[k] = v
	v.set(sink)
	return true
}

func (r *registry) delete(k key, sink source.Sink) bool {
	if _, ok := r.sent[k]; !ok || len(r.claims[k]) > 0 {
		return false
	}
	delete(r.sent, k)
	k.delete(sink)
	return true
}

// clashes lists the objects that lost against one of the same name.
func (r *registry) clashes() []Problem {
	var out []Problem
	for k := range r.shared {
		list := r.claims[k]
		for _, c := range list[1:] {
			out = append(out, Problem{
				File: c.file, Document: c.object.document, Line: c.object.line, Object: k.String(),
				Reason: fmt.Sprintf("defined already in %s (document %d), which is used", list[0].file, list[0].object.document),
			})
		}
	}
	return out
}
