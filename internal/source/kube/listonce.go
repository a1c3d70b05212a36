package kube

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// onceLimit is how many objects one request of Once asks for: some MiB.
const onceLimit = 2000

// Once lists everything a single time and delivers it to a sink as complete, for verbs that
// look and end. Nothing is tried again: the first request that fails is the answer, and its
// error names the right that is missing or the remedy. ctx bounds all requests together.
func Once(ctx context.Context, api API, o Options, sink source.Sink) error {
	s := New(zap.NewNop(), api, o)
	s.begin(s.watched())
	for _, k := range []kind{s.nodes(), s.slices(metav1.NamespaceAll), s.services(metav1.NamespaceAll)} {
		if err := s.once(ctx, &k, sink); err != nil {
			reason, err := explain("list", k.name, err)
			if reason == Forbidden {
				err = fmt.Errorf("%w (a kubelet's kubeconfig has no such right; one of an administrator or of kube-proxy has)", err)
			}
			return err
		}
	}
	sink.SetState(model.FromKube, source.Complete)
	return nil
}

// once delivers all objects of a kind, a page at a time. A page that the server has dropped
// (410) is the end of it: a second list could miss what the first one had.
func (s *Source) once(ctx context.Context, k *kind, sink source.Sink) error {
	o := metav1.ListOptions{LabelSelector: k.labels, FieldSelector: k.fields, Limit: onceLimit}
	for {
		allowed := &readBudget{most: s.maxListBytes, keeps: true}
		in, err := k.list(withReadBudget(ctx, allowed), o)
		if err != nil {
			return err
		}
		page, err := k.convertList(in)
		if err == nil && len(page.Items) == 0 && allowed.missingKind() {
			err = fmt.Errorf("%w: the answer is no list of %s: JSON without a kind", errUnexpectedObject, k.name)
		}
		if err != nil {
			return err
		}
		deliver(k, page.Items, sink)
		if o.Continue = page.Continue; o.Continue == "" {
			return nil
		}
	}
}

func deliver(k *kind, items []runtime.Object, sink source.Sink) {
	for _, obj := range items {
		k.set(sink, obj.(*converted).value)
	}
}
