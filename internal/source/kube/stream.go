package kube

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// Failures of a watch that client-go does not report as errors.
var (
	errIdle        = errors.New("it sent nothing for too long")
	errClosedEarly = errors.New("the watch ended at once, without an event")
	errTruncated   = errors.New("the stream ended before the list was complete")
)

// eventBuffer is how many events may wait for the reflector. Without a buffer each event costs two
// switches of goroutines, which is most of the cost of a small one.
const eventBuffer = 64

// aliveResolution is the least time between two objects of a list that count as signs of life.
const aliveResolution = 100 * time.Millisecond

// stream passes on a watch, or a list that is streamed by a watch, to a reflector.
type stream struct {
	*listWatcher
	// ctx ends the request. The idle timeout ends it, too, and the reflector still has to get the
	// reason then.
	ctx     context.Context
	cancel  context.CancelFunc
	stopped chan struct{} // the reflector has gone
	stop    sync.Once
	result  chan watch.Event
	began   time.Time
	lasts   time.Duration // the requested time of the watch

	// readBudget is the budget of one event.
	readBudget *readBudget
	timer      *time.Timer
	aliveNoted atomic.Bool // an object of a list counted as a sign of life within aliveResolution
	idle       atomic.Bool // the timer ended the request
	faulted    atomic.Bool // a failure was recorded
	report     func(error)
	// listing: the bookmark that ends a streamed list has not come. Before run it
	// belongs to the caller, then to run.
	listing bool
}

func newStream(ctx context.Context, c *listWatcher, listing bool) *stream {
	s := &stream{listWatcher: c, stopped: make(chan struct{}), result: make(chan watch.Event, eventBuffer), began: time.Now(), listing: listing, readBudget: newReadBudget(c.source.maxEventBytes)}
	s.report = c.failureReporter(ctx, "watch")
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.timer = time.AfterFunc(s.idleTimeout(), func() { s.idle.Store(true); s.cancel() })
	return s
}

func (s *stream) idleTimeout() time.Duration {
	if s.listing {
		return listTimeout
	}
	return watchIdleTimeout
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.result }

// Stop implements watch.Interface.
func (s *stream) Stop() {
	s.stop.Do(func() { close(s.stopped) })
	s.timer.Stop()
	s.cancel()
}

// expired reports whether the idle timeout ended the stream.
func (s *stream) expired() bool { return s.idle.Load() }

// fault records a failure.
func (s *stream) fault(err error) {
	s.faulted.Store(true)
	s.report(err)
}

// run passes on the events of in until either side ends.
func (s *stream) run(in watch.Interface) {
	defer close(s.result)
	defer in.Stop()
	defer s.cancel()
	defer s.timer.Stop()
	// client-go returns a closed watch for a server that does not answer. Any other watch was
	// opened by the server, which is a sign of life.
	select {
	case e, ok := <-in.ResultChan():
		if !s.pass(e, ok, true) {
			return
		}
	default:
		s.source.markHealthy(s.name)
	}
	for first := true; ; first = false {
		select {
		case <-s.ctx.Done():
			s.onIdleTimeout()
			return
		case e, ok := <-in.ResultChan():
			if !s.pass(e, ok, first) {
				return
			}
		}
	}
}

// pass passes on one event, or the end of the events, and reports whether to continue.
func (s *stream) pass(e watch.Event, ok, first bool) bool {
	if !ok {
		s.closed(first)
		return false
	}
	s.readBudget.renew()
	out := s.take(e)
	return s.send(out) && out.Type != watch.Error
}

// markAlive records a sign of life, but not for each object of a list: it reads the clock twice,
// which is slow where the clock is a system call.
func (s *stream) markAlive() {
	switch {
	case !s.listing:
		s.aliveNoted.Store(false)
	case s.aliveNoted.Load():
		return
	default:
		s.aliveNoted.Store(true)
		time.AfterFunc(aliveResolution, func() { s.aliveNoted.Store(false) })
	}
	s.source.markHealthy(s.name)
	s.timer.Reset(s.idleTimeout())
}

// take converts an event and records what it shows about the server.
func (s *stream) take(e watch.Event) watch.Event {
	switch e.Type {
	case watch.Error:
		if err := apierrors.FromObject(e.Object); !s.listing || !unstreamed(err) {
			s.fault(err)
			if s.listing && unanswered(err) {
				s.onStreamBroken(err)
			}
		}
		return e
	case watch.Bookmark:
		c, endsList, err := bookmark(e.Object)
		if err != nil {
			return s.onUnexpectedObject(err)
		}
		if s.listing && endsList {
			s.listing, s.brokenLists = false, 0
		}
		e.Object = c
	default:
		c, err := s.convert(e.Object)
		if err != nil {
			return s.onUnexpectedObject(err)
		}
		e.Object = c
		if s.listing {
			s.store.arrive(c)
		}
	}
	s.markAlive()
	return e
}

// onUnexpectedObject ends a watch with an object that cannot be used: continuing would miss its
// change.
func (s *stream) onUnexpectedObject(err error) watch.Event {
	s.fault(err)
	return failure(apierrors.NewInternalError(err))
}

// closed records why a stream that the server ended is a failure, if it is one.
func (s *stream) closed(first bool) {
	switch {
	case s.listing:
		if !s.faulted.Load() {
			s.fault(errTruncated)
		}
		s.onStreamBroken(errTruncated)
		// client-go would ask for the stream again at once, without end.
		s.send(failure(apierrors.NewInternalError(errTruncated)))
	case first && time.Since(s.began) < shortWatch && !s.faulted.Load():
		s.fault(errClosedEarly) // a pause of follow comes next
	default:
		s.short.Store(time.Since(s.began) < s.lasts)
	}
}

// onIdleTimeout ends a stream that was silent for too long. That is no failure of a watch, because
// the server may send no bookmarks: the list that follows shows the truth.
func (s *stream) onIdleTimeout() {
	switch {
	case !s.expired():
	case s.listing:
		s.fault(errIdle)
		s.send(failure(apierrors.NewInternalError(errIdle)))
	default:
		s.source.log.Debug("the watch sent nothing for too long, will list again", zap.String("kind", s.name), zap.Duration("after", watchIdleTimeout))
		s.send(failure(apierrors.NewResourceExpired(errIdle.Error())))
	}
}

func (s *stream) send(e watch.Event) bool {
	select {
	case s.result <- e:
		return true
	case <-s.stopped:
		return false
	}
}

func failure(err *apierrors.StatusError) watch.Event {
	status := err.Status()
	return watch.Event{Type: watch.Error, Object: &status}
}
