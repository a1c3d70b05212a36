package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// sendNodes sends the messages about the Node. The limit of its subject is all that
// holds it back: there is one object and a handful of kinds.
func (r *Recorder) sendNodes(ctx context.Context) {
	for {
		m, ok := r.next(ctx, r.nodes)
		if !ok {
			return
		}
		// kubectl describe node looks for Events with the name in place of the UID, as
		// the kubelet writes them; kube-proxy writes none and is not found.
		r.write(ctx, m, types.UID(m.name))
	}
}

// sendServices sends the messages about Services, within the limit for all of them.
func (r *Recorder) sendServices(ctx context.Context) {
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
			r.log.Debug("event not sent, the service is gone", m.service(), zap.String("reason", m.Reason))
		default:
			r.write(ctx, m, uid)
		}
	}
}

// next waits for a message that may be sent.
func (r *Recorder) next(ctx context.Context, q *queue) (message, bool) {
	for {
		m, ok := q.take(ctx)
		if !ok {
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
	errTooMany = errors.New("too many events of this reason about this object")
)

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
// the agent keeps none. kube-proxy's ClusterRole system:node-proxier may list Services but
// not get one. The result is empty if there is no such Service.
func (r *Recorder) serviceUID(ctx context.Context, o object) (types.UID, error) {
	// The cache of the server first; it may not have seen a Service that is new.
	for _, version := range []string{"0", ""} {
		list, err := r.api.ListServices(ctx, o.namespace, metav1.ListOptions{
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
