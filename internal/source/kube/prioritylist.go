package kube

import (
	"context"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownName is the name of the API server's own Service, in the namespace default, by which pods
// reach it.
const ownName = "kubernetes"

// listPriorityObjects blocks until the objects that a new node needs first have arrived, at most
// for priorityListLimit. These are the Nodes, whose reflector runs already, and the API server's
// own Service. That arrives late in a long list, because lists are sorted by namespace and name.
func (s *Source) listPriorityObjects(ctx context.Context, group *errgroup.Group, stores map[string]*store) {
	ctx, cancel := context.WithTimeout(ctx, s.waits.priorityList)
	defer cancel()
	list := s.priorityKinds()
	answers := make(chan func(), len(list))
	for i := range list {
		k := &list[i]
		group.Go(func() error {
			answers <- s.listKubernetesService(ctx, k, stores[k.name])
			return nil
		})
	}
	for range list {
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

// priorityKinds returns the kinds, narrowed to the API server's own Service and its slices.
func (s *Source) priorityKinds() []kind {
	own, slices := s.services(metav1.NamespaceDefault), s.slices(metav1.NamespaceDefault)
	own.fields += "," + metav1.ObjectNameField + "=" + ownName
	slices.labels += "," + discoveryv1.LabelServiceName + "=" + ownName
	return []kind{own, slices}
}

// listKubernetesService lists one kind and returns a function that delivers the answer as part of
// the first list, whose end removes the objects that are not in it. Call that function before the
// list begins, so that the list alone replaces objects. The answer may be as old as the server's
// watch cache, which spares etcd a read for each agent. It may also be newer than a list from the
// cache of another server: then the older version is served until the watch sends the newer one.
func (s *Source) listKubernetesService(ctx context.Context, k *kind, into *store) (deliver func()) {
	in, err := k.list(withReadBudget(ctx, newReadBudget(s.maxEventBytes)), metav1.ListOptions{
		LabelSelector: k.labels, FieldSelector: k.fields, ResourceVersion: "0",
	})
	var out *list
	if err == nil {
		out, err = k.convertList(in)
	}
	if err != nil {
		s.log.Debug("listing the kubernetes Service first failed, it comes with all other Services", zap.String("kind", k.name), zap.Error(err))
		return func() {}
	}
	return func() {
		for _, obj := range out.Items {
			into.arrive(obj.(*converted))
		}
	}
}
