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

// What a watch can suffer without client-go calling it an error.
var (
	errSilent = errors.New("it was silent for too long")
	errBrief  = errors.New("the watch ended at once, without an event")
	errCut    = errors.New("the stream ended before the list was complete")
)

// ahead is how many events may wait for the reflector: with none each costs two changes of
// goroutine, which is most of what a small one costs.
const ahead = 64

// aMoment is how exact the signs of life are that the objects of a list are.
const aMoment = 100 * time.Millisecond

// stream is a watch, or a list that is streamed by one, on its way to a reflector.
type stream struct {
	*caller
	// ctx ends the request; it is ended by silence too, when the reflector still
	// has to be told why.
	ctx     context.Context
	cancel  context.CancelFunc
	stopped chan struct{} // the reflector has gone
	stop    sync.Once
	result  chan watch.Event
	began   time.Time
	lasts   time.Duration // as it was asked to

	// allowance is for one event.
	allowance *allowance
	timer     *time.Timer
	noted     atomic.Bool // an object of a list was a sign of life a moment ago
	mute      atomic.Bool // the timer ended it
	faulted   atomic.Bool // something was noted already
	tell      func(error)
	// listing: the bookmark that ends a streamed list has not come. Before run it
	// belongs to the caller, then to run.
	listing bool
}

func newStream(ctx context.Context, c *caller, listing bool) *stream {
	s := &stream{caller: c, stopped: make(chan struct{}), result: make(chan watch.Event, ahead), began: time.Now(), listing: listing, allowance: newAllowance(c.source.mostEvent)}
	s.tell = c.fails(ctx, "watch")
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.timer = time.AfterFunc(s.patience(), func() { s.mute.Store(true); s.cancel() })
	return s
}

func (s *stream) patience() time.Duration {
	if s.listing {
		return listLimit
	}
	return silence
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.result }

// Stop implements watch.Interface.
func (s *stream) Stop() {
	s.stop.Do(func() { close(s.stopped) })
	s.timer.Stop()
	s.cancel()
}

// expired tells whether silence ended the stream.
func (s *stream) expired() bool { return s.mute.Load() }

// fault notes what went wrong.
func (s *stream) fault(err error) {
	s.faulted.Store(true)
	s.tell(err)
}

// run passes on what in says until either side has enough.
func (s *stream) run(in watch.Interface) {
	defer close(s.result)
	defer in.Stop()
	defer s.cancel()
	defer s.timer.Stop()
	// client-go hides a server that does not answer behind a watch that is closed
	// already; any other was opened by the server, and that is a sign of life.
	select {
	case e, ok := <-in.ResultChan():
		if !s.pass(e, ok, true) {
			return
		}
	default:
		s.source.well(s.name)
	}
	for first := true; ; first = false {
		select {
		case <-s.ctx.Done():
			s.abandoned()
			return
		case e, ok := <-in.ResultChan():
			if !s.pass(e, ok, first) {
				return
			}
		}
	}
}

// pass hands one event on, or the end of them; it tells whether to go on.
func (s *stream) pass(e watch.Event, ok, first bool) bool {
	if !ok {
		s.closed(first)
		return false
	}
	s.allowance.renew()
	out := s.take(e)
	return s.send(out) && out.Type != watch.Error
}

// lively notes that the server speaks, but not for each object of a list: that reads the clock
// twice, which was a tenth of a start where that is a call of the kernel.
func (s *stream) lively() {
	switch {
	case !s.listing:
		s.noted.Store(false)
	case s.noted.Load():
		return
	default:
		s.noted.Store(true)
		time.AfterFunc(aMoment, func() { s.noted.Store(false) })
	}
	s.source.well(s.name)
	s.timer.Reset(s.patience())
}

// take converts an event and notes what it says about the server.
func (s *stream) take(e watch.Event) watch.Event {
	switch e.Type {
	case watch.Error:
		if err := apierrors.FromObject(e.Object); !s.listing || !unstreamed(err) {
			s.fault(err)
			if s.listing && lost(err) {
				s.brokeOff(err)
			}
		}
		return e
	case watch.Bookmark:
		c, endsList, err := bookmark(e.Object)
		if err != nil {
			return s.strange(err)
		}
		if s.listing && endsList {
			s.listing, s.breaks = false, 0
		}
		e.Object = c
	default:
		c, err := s.convert(e.Object)
		if err != nil {
			return s.strange(err)
		}
		e.Object = c
		if s.listing {
			s.store.arrive(c)
		}
	}
	s.lively()
	return e
}

// strange ends a watch that says what cannot be understood: to go on would be to
// miss it.
func (s *stream) strange(err error) watch.Event {
	s.fault(err)
	return failure(apierrors.NewInternalError(err))
}

// closed says why a stream that the other side ended is no good, if it is not.
func (s *stream) closed(first bool) {
	switch {
	case s.listing:
		if !s.faulted.Load() {
			s.fault(errCut)
		}
		s.brokeOff(errCut)
		// client-go would ask for the stream again at once, and again.
		s.send(failure(apierrors.NewInternalError(errCut)))
	case first && time.Since(s.began) < brief && !s.faulted.Load():
		s.fault(errBrief) // a pause of ours follows
	default:
		s.short.Store(time.Since(s.began) < s.lasts)
	}
}

// abandoned ends a stream that was silent for too long. A watch that is quiet may be
// fine, where the server sends no bookmarks: the list that follows tells.
func (s *stream) abandoned() {
	switch {
	case !s.expired():
	case s.listing:
		s.fault(errSilent)
		s.send(failure(apierrors.NewInternalError(errSilent)))
	default:
		s.source.log.Debug("watch without a sign of life, will list again", zap.String("kind", s.name), zap.Duration("after", silence))
		s.send(failure(apierrors.NewResourceExpired(errSilent.Error())))
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
