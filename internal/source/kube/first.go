package kube

import (
	"context"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownName is the Service of the API server itself, in the namespace default, by which
// pods reach it.
const ownName = "kubernetes"

// headStart has what a new node waits for come before the large lists: the Nodes, whose
// reflector runs already, and the API server's own Service, which a list of many brings
// late, sorted by namespace and name as it is. It ends when they are there, or took too
// long.
func (s *Source) headStart(ctx context.Context, group *errgroup.Group, stores map[string]*store) {
	ctx, cancel := context.WithTimeout(ctx, s.waits.headStart)
	defer cancel()
	early := s.early()
	answers := make(chan func(), len(early))
	for i := range early {
		k := &early[i]
		group.Go(func() error {
			answers <- s.askEarly(ctx, k, stores[k.name])
			return nil
		})
	}
	for range early {
		select {
		case deliver := <-answers:
			deliver()
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-s.haveNodes:
	case <-ctx.Done():
	}
}

// early are the kinds, narrowed to the API server's own Service and its slices.
func (s *Source) early() []kind {
	own, slices := s.services(metav1.NamespaceDefault), s.slices(metav1.NamespaceDefault)
	own.fields += "," + metav1.ObjectNameField + "=" + ownName
	slices.labels += "," + discoveryv1.LabelServiceName + "=" + ownName
	return []kind{own, slices}
}

// askEarly returns what delivers the answer, as part of the first list: the end of that
// takes back what is not in it. It has to be called before the list begins, so that the
// list alone replaces anything. The answer may be as old as the server's watch cache,
// which spares etcd a read for each agent, or newer than a list from the cache of another
// server: then the older version is served until the watch that follows from there tells
// of the newer one.
func (s *Source) askEarly(ctx context.Context, k *kind, into *store) (deliver func()) {
	in, err := k.list(withAllowance(ctx, newAllowance(s.mostEvent)), metav1.ListOptions{
		LabelSelector: k.labels, FieldSelector: k.fields, ResourceVersion: "0",
	})
	var out *list
	if err == nil {
		out, err = k.convertList(in)
	}
	if err != nil {
		s.log.Debug("the API server's own Service comes with all others", zap.String("kind", k.name), zap.Error(err))
		return func() {}
	}
	return func() {
		for _, obj := range out.Items {
			into.arrive(obj.(*converted))
		}
	}
}
