package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// controller is the reporting controller. It is kube-proxy's, so that selectors for its
// Events find ours.
const controller = "kube-proxy"

// eventTTL is how long an API server keeps an Event after its last change, by default
// (kube-apiserver --event-ttl).
const eventTTL = time.Hour

// words are the reason and the text of an Event about an object. While the Event that has them
// exists, the same words again are a series of that Event.
type words struct {
	subject
	uid  types.UID
	text string
}

// series is an Event that was written, and how often it was said.
type series struct {
	name  string
	count int32
}

// write writes a message until it is there, too old, or refused.
func (r *Recorder) write(ctx context.Context, m message, uid types.UID) {
	said := words{m.subject, uid, m.text}
	e := r.event(m, uid)
	if before, ok := r.written.Get(said); ok {
		last := before.(series)
		last.count++
		e.Series = &eventsv1.EventSeries{Count: last.count, LastObservedTime: e.EventTime}
		if !apierrors.IsNotFound(r.renew(ctx, e, last)) {
			r.written.Add(said, last, eventTTL)
			return
		}
	}
	create := func(ctx context.Context) error {
		err := r.api.CreateEvent(ctx, e)
		if apierrors.IsAlreadyExists(err) {
			return nil // an earlier try arrived, its answer did not
		}
		return err
	}
	err := r.persist(ctx, m, r.once(ctx, create), create)
	switch {
	case err == nil:
		r.written.Add(said, series{e.Name, count(e)}, eventTTL)
	case ctx.Err() == nil:
		r.drop(m, err)
	}
}

func count(e *eventsv1.Event) int32 {
	if e.Series != nil {
		return e.Series.Count
	}
	return 1
}

// renew writes how often an Event was said. It tries once: a count that is behind loses
// nothing, and the next one has it.
func (r *Recorder) renew(ctx context.Context, e *eventsv1.Event, s series) error {
	patch, err := json.Marshal(map[string]any{"series": e.Series})
	if err == nil {
		err = r.once(ctx, func(ctx context.Context) error { return r.api.PatchEvent(ctx, e.Namespace, s.name, patch) })
	}
	if err != nil {
		r.log.Debug("series of an event not written", zap.String("reason", e.Reason), zap.Error(err))
	}
	return err
}

// event is a message as the API has it. The Events about the Node are in the namespace
// that kubectl describe looks into.
func (r *Recorder) event(m message, uid types.UID) *eventsv1.Event {
	namespace := m.namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: eventName(m.name, time.Now())},
		EventTime:           metav1.NewMicroTime(m.at),
		ReportingController: controller,
		ReportingInstance:   cut(controller+"-"+r.node, maxInstance),
		Action:              m.Action,
		Reason:              m.Reason,
		Type:                m.eventType(),
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: m.kind, Namespace: m.namespace, Name: m.name, UID: uid},
		Note:                m.text,
	}
}

// eventName names an Event after its object, which may leave no room for the time behind
// it, or have a name that is none for an Event (RFC 1123 subdomain).
func eventName(object string, at time.Time) string {
	behind := fmt.Sprintf(".%x", at.UnixNano())
	object = strings.TrimRight(cut(object, validation.DNS1123SubdomainMaxLength-len(behind)), "-.")
	if name := object + behind; len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	return controller + behind
}

// once makes one call to the API within its time.
func (r *Recorder) once(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.limits.Timeout)
	defer cancel()
	return call(ctx)
}

// persist repeats a call that failed with err, until the API answers it, the message is
// too old or ctx ends.
func (r *Recorder) persist(ctx context.Context, m message, err error, call func(context.Context) error) error {
	if transient(err) && ctx.Err() == nil {
		r.log.Warn("event not written, will try again", m.service(), zap.String("reason", m.Reason), zap.Error(err))
	}
	pause := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 30 * time.Second}
	for transient(err) {
		if time.Since(m.at) > r.limits.MaxAge {
			return fmt.Errorf("%w: %w", errTooOld, err)
		}
		if !sleep(ctx, pause.Step()) {
			return ctx.Err()
		}
		err = r.once(ctx, call)
	}
	return err
}

// sleep waits, and returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// transient reports whether the same call may succeed later: no answer came, the server is
// overloaded or broken, or it rejects the credentials while a token is being renewed.
func transient(err error) bool {
	var build *rest.RequestConstructionError
	if err == nil || errors.As(err, &build) {
		return false
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	code := answer.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusUnauthorized
}
