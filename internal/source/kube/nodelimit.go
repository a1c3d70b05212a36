package kube

import (
	"context"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// limitNodes counts the Nodes before the first call of their kind, and restricts the kind to our own
// Node if there are too many. One reflector calls, from one goroutine at a time.
func (s *Source) limitNodes(k *kind) {
	list, open, selector, counted := k.list, k.watch, "", false
	ask := func(ctx context.Context, o *metav1.ListOptions) error {
		if !counted {
			n, err := count(ctx, list)
			if err != nil {
				return err
			}
			counted = true
			if n > s.opts.ManyNodes {
				selector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.opts.Node).String()
				s.log.Warn("too many nodes to follow them all: an address of a service that another node has would be bound here, and weights that other nodes ask for are not known",
					zap.Int("nodes", n), zap.Int("most", s.opts.ManyNodes))
			}
		}
		o.FieldSelector = selector
		return nil
	}
	k.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		if err := ask(ctx, &o); err != nil {
			return nil, err
		}
		return list(ctx, o)
	}
	k.watch = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		if err := ask(ctx, &o); err != nil {
			return nil, err
		}
		return open(ctx, o)
	}
}

// count returns the number of objects: it lists one, and the server reports how many remain
// (metadata.remainingItemCount).
func count(ctx context.Context, list func(context.Context, metav1.ListOptions) (runtime.Object, error)) (int, error) {
	page, err := list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	l, err := meta.ListAccessor(page)
	if err != nil {
		return 0, err
	}
	n := meta.LenList(page)
	if rest := l.GetRemainingItemCount(); rest != nil {
		n += int(*rest)
	}
	return n, nil
}
