package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// LastNode says something about the Node when the agent is about to end, and waits
// until it is written or ctx ends: Run sends nothing any more then. It is the only
// method that waits for the API server. A failure is logged, for nobody can act on it.
func (r *Recorder) LastNode(ctx context.Context, kind Kind, text string) {
	if r == nil {
		return
	}
	m := message{subject{object{kind: "Node", name: r.node}, kind}, cut(text, maxNote), time.Now()}
	_, err := r.client.EventsV1().Events(metav1.NamespaceDefault).Create(ctx, r.lone(m), metav1.CreateOptions{})
	if err != nil {
		r.drop(m, errors.Join(err, context.Cause(ctx)))
		return
	}
	r.log.Debug("event written", zap.String("reason", kind.Reason))
}

// lone is an Event about the Node that belongs to no series.
func (r *Recorder) lone(m message) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.%x", m.name, m.at.UnixNano())},
		EventTime:           metav1.NewMicroTime(m.at),
		ReportingController: controller,
		ReportingInstance:   cut(controller+"-"+r.node, maxInstance),
		Action:              m.Action,
		Reason:              m.Reason,
		Type:                m.eventType(),
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: m.name, UID: types.UID(m.name)},
		Note:                m.text,
	}
}
