package topology

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// The pause before the next request while one answer is awaited. It begins with 1.5 times the
// duration of a request, within these bounds, because the CPUs belong to the candidate. A request
// takes 2 ms on an emulated machine, less than half a millisecond elsewhere. patience bounds one
// request: a packet that is lost while rules change comes again after a second, which would count
// as the candidate's time.
const (
	shortestPause = 500 * time.Microsecond
	pause         = 3 * time.Millisecond
	longestPause  = 25 * time.Millisecond
	patience      = 250 * time.Millisecond
)

// pauseAfter is the pause before the next request, by the time of the last request and the time waited so far. It grows, so that waiting does
// not prolong itself, but an answer is seen late by a tenth of its time at most, or by the first pause.
func pauseAfter(took, waited time.Duration) time.Duration {
	return min(max(shortestPause, min(took*3/2, pause), waited/10), longestPause)
}

// ErrNotInTime means that the limit came before the answer.
var ErrNotInTime = errors.New("not in time")

var (
	errOthers   = errors.New("another endpoint answers")
	errNoAnswer = errors.New("no endpoint has answered yet")
)

// Ask makes one request over a connection and from an address of its own, and returns the endpoint that answered. It has to be called inside
// of the pod: see Inside.
func (w *Network) Ask(ctx context.Context, to netip.AddrPort) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := backend.Ask(ctx, backend.TCP, to, w.Source())
	return reply.Local.Addr(), err
}

// Inside runs f inside of the pod.
func (w *Network) Inside(f func() error) error { return w.Pod.Do(f) }

// askers is how many questions of Until may be open at once. A second request is sent if one has no
// answer after hedge, because its packet may have been lost just before the answer became
// available. patience ends it before all askers wait.
const (
	askers       = 16
	hedge        = patience / askers
	firstHedge   = 2 * time.Millisecond
	hedgeLonger  = 4 // times what a question took that was answered
	hedgeGrowing = 2
)

// hedges is how long each next question waits for those that are open.
type hedges time.Duration

// answered begins again: the next question is worth another one when it takes much longer than that.
func (h *hedges) answered(took time.Duration) { *h = hedges(max(firstHedge, hedgeLonger*took)) }

func (h *hedges) next() time.Duration {
	now := min(time.Duration(*h), hedge)
	*h = hedges(now * hedgeGrowing)
	return now
}

// answer is what became of a question.
type answer struct {
	from netip.Addr
	at   time.Time
	took time.Duration
	err  error
}

// Until asks over new connections until the right endpoint answers, any if want is not valid, and returns when that was. The error is
// ErrNotInTime where the limit came first.
func (w *Network) Until(ctx context.Context, to netip.AddrPort, want netip.Addr, limit time.Duration) (time.Time, error) {
	at, err := w.until(ctx, func(ctx context.Context) (netip.Addr, error) { return w.Ask(ctx, to) }, want, limit)
	if err != nil {
		err = fmt.Errorf("ask %s: %w", to, err)
	}
	return at, err
}

// until is Until with the function that asks one question.
func (w *Network) until(ctx context.Context, ask func(context.Context) (netip.Addr, error), want netip.Addr, limit time.Duration) (time.Time, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of questions that are still open
	answers := make(chan answer, askers)
	last := errNoAnswer
	open, patient := 0, hedges(hedge)
	if took := w.took.Load(); took > 0 {
		patient.answered(time.Duration(took))
	}
	begun := time.Now()
	for deadline := begun.Add(limit); ; {
		if open < askers {
			open++
			w.asking <- func() {
				asked := time.Now()
				from, err := ask(ctx)
				at := time.Now()
				answers <- answer{from, at, at.Sub(asked), err}
			}
		}
		select {
		case a := <-answers:
			open--
			if a.err == nil && (!want.IsValid() || a.from == want) {
				w.took.Store(int64(a.took))
				return a.at, nil
			}
			if last = a.err; last == nil {
				last = errOthers
			}
			patient.answered(a.took)
			w.took.Store(int64(a.took))
			time.Sleep(pauseAfter(a.took, time.Since(begun)))
		case <-time.After(max(patient.next(), pauseAfter(0, time.Since(begun)))):
		}
		if ctx.Err() != nil {
			return time.Now(), ctx.Err()
		}
		if now := time.Now(); now.After(deadline) {
			return now, fmt.Errorf("%w of %s: %w", ErrNotInTime, limit, last)
		}
	}
}

// longPatience is for a request that has to be answered.
const longPatience = 20 * time.Second
