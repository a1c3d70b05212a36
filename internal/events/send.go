package events

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// start makes the broadcaster and lets it write through our sink.
func (r *Recorder) start(ctx context.Context) (events.EventBroadcaster, error) {
	b := events.NewBroadcaster(r.sink())
	if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
		b.Shutdown()
		return nil, fmt.Errorf("start the event broadcaster: %w", err)
	}
	return b, nil
}

// sendNodes sends what is said about the Node. The limit of its subject is all that
// holds it back: there is one object and a handful of kinds.
func (r *Recorder) sendNodes(ctx context.Context, out events.EventBroadcaster) {
	for {
		m, ok := r.next(ctx, r.nodes)
		if !ok {
			return
		}
		// kubectl describe node looks for Events with the name in place of the UID, as
		// the kubelet writes them; kube-proxy writes none and is not found.
		r.hand(out, m, types.UID(m.name))
	}
}

// sendServices sends what is said about Services, within the limit for all of them.
func (r *Recorder) sendServices(ctx context.Context, out events.EventBroadcaster) {
	for {
		m, ok := r.next(ctx, r.services)
		if !ok || r.overall.Wait(ctx) != nil {
			return
		}
		uid, err := r.lookUp(ctx, m)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.drop(m, err)
		case uid == "":
			r.log.Debug("no event, the service is gone", m.service(), zap.String("reason", m.Reason))
		default:
			r.hand(out, m, uid)
		}
	}
}

// next waits for a message that may be sent. While the API server does not take what it
// was given, messages rather wait in the queue, where there is a bound.
func (r *Recorder) next(ctx context.Context, q *queue) (message, bool) {
	for {
		m, ok := q.take(ctx)
		if !ok || !r.waitForAPI(ctx) {
			return message{}, false
		}
		switch {
		case time.Since(m.at) > r.limits.MaxAge:
			r.drop(m, errTooOld)
		case r.admit(m):
			return m, true
		}
	}
}

func (r *Recorder) admit(m message) bool {
	v := r.history.admit(m)
	if v == excessive {
		r.drop(m, errTooMany)
	}
	return v == admitted
}

var (
	errTooOld  = errors.New("could not be sent in time")
	errTooMany = errors.New("too many of this kind about this object")
)

// hand gives an Event to the broadcaster. That counts Events as repetitions that differ
// in their text alone; so each text has a controller of its own, which the sink undoes.
func (r *Recorder) hand(out events.EventBroadcaster, m message, uid types.UID) {
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: m.kind, Namespace: m.namespace, Name: m.name, UID: uid}
	text := fnv.New64a()
	text.Write([]byte(m.text))
	recorder := out.NewRecorder(scheme.Scheme, fmt.Sprintf("%s/%x", controller, text.Sum64()))
	recorder.Eventf(ref, nil, m.eventType(), m.Reason, m.Action, "%s", m.text)
}

// lookUp finds the UID of the Service a message is about, however long it takes.
func (r *Recorder) lookUp(ctx context.Context, m message) (uid types.UID, err error) {
	ask := func(ctx context.Context) (err error) {
		uid, err = r.serviceUID(ctx, m.object)
		return err
	}
	err = r.persist(ctx, m, r.once(ctx, ask), ask)
	return uid, err
}

// serviceUID asks for the UID of a Service: kubectl describe selects Events by it, and
// the agent keeps none. The role of kube-proxy may list Services but not get one
// (contract section 11.2). The answer is empty if there is no such Service.
func (r *Recorder) serviceUID(ctx context.Context, o object) (types.UID, error) {
	// The cache of the server first; it may not have seen a Service that is new.
	for _, version := range []string{"0", ""} {
		list, err := r.client.CoreV1().Services(o.namespace).List(ctx, metav1.ListOptions{
			FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, o.name).String(),
			ResourceVersion: version,
		})
		if err != nil {
			return "", fmt.Errorf("look up service %s/%s: %w", o.namespace, o.name, err)
		}
		if len(list.Items) > 0 {
			return list.Items[0].UID, nil
		}
	}
	return "", nil
}

// drop counts a message that is given up.
func (r *Recorder) drop(m message, why error) {
	r.dropped.Add(1)
	r.log.Debug("event dropped", m.service(), zap.String("reason", m.Reason), zap.Error(why))
}

// service is the field by which logs name what a message is about.
func (m message) service() zap.Field {
	if m.kind != "Service" {
		return zap.Skip()
	}
	return zap.String("service", m.namespace+"/"+m.name)
}
