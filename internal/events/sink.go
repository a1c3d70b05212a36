package events

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
)

// controller is the reporting controller, that of kube-proxy: what selects its Events
// finds ours (contract section 11.1).
const controller = "kube-proxy"

// sink writes the Events that come out of the broadcaster. It keeps errors to itself:
// the broadcaster would print whole Events through a logger that is not ours.
type sink struct {
	r   *Recorder
	api events.EventSinkImpl
}

func (r *Recorder) sink() *sink {
	return &sink{r, events.EventSinkImpl{Interface: r.client.EventsV1()}}
}

// Create writes a new Event. It tries until the Event is too old; but once only where it
// renews a series, since the broadcaster holds its lock meanwhile and will come again.
func (s *sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	e = s.restore(e)
	m := messageOf(e)
	write := func(ctx context.Context) error {
		_, err := s.api.Create(ctx, e)
		if apierrors.IsAlreadyExists(err) {
			return nil // an earlier try arrived, its answer did not
		}
		return err
	}
	err := s.r.once(ctx, write)
	if e.Series == nil && transient(err) {
		s.r.troubled.Add(1)
		defer s.r.troubled.Add(-1)
		err = s.r.persist(ctx, m, err, write)
	}
	if err != nil && ctx.Err() == nil {
		s.r.drop(m, err)
	}
	return e, nil
}

// Patch writes how often an Event was repeated. Not found is the one answer that the
// broadcaster acts on: it creates the Event anew.
func (s *sink) Patch(ctx context.Context, e *eventsv1.Event, patch []byte) (*eventsv1.Event, error) {
	err := s.r.once(ctx, func(ctx context.Context) error {
		_, err := s.api.Patch(ctx, e, patch)
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, err
	}
	if err != nil {
		s.r.log.Debug("series of an event not written", zap.String("reason", e.Reason), zap.Error(err))
	}
	return e, nil
}

// Update is not used by the broadcaster, but part of its interface.
func (s *sink) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.api.Update(ctx, e)
}

// restore returns the Event with what the broadcaster cannot know: who says it, and when
// it was said rather than sent.
func (s *sink) restore(e *eventsv1.Event) *eventsv1.Event {
	e = e.DeepCopy()
	e.ReportingController = controller
	e.ReportingInstance = cut(controller+"-"+s.r.node, maxInstance)
	if at, ok := s.r.history.saidAt(messageOf(e).subject, e.Note); ok {
		e.EventTime = metav1.NewMicroTime(at)
	}
	return e
}

// messageOf is the message an Event was made of.
func messageOf(e *eventsv1.Event) message {
	o := object{e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name}
	k := Kind{e.Reason, e.Action, e.Type == corev1.EventTypeWarning}
	return message{subject{o, k}, e.Note, e.EventTime.Time}
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

// waitForAPI waits until no Event is on its second try or later, and returns false if ctx
// ends.
func (r *Recorder) waitForAPI(ctx context.Context) bool {
	for r.troubled.Load() > 0 {
		if !sleep(ctx, time.Second) {
			return false
		}
	}
	return ctx.Err() == nil
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

// transient tells whether the same call may succeed later: no answer came, the server is
// overloaded or broken, or it does not know us while a token is being renewed.
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
