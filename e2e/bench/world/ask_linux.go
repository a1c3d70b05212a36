package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// How long the next question waits for an answer that is waited for: at first half as long again as a question takes, for the CPUs are the
// candidate's, within these bounds. A question takes one of an emulated machine for 2 ms, others for less than half of one. patience is for one
// question: a packet that is lost while rules change comes again after a second, which would be taken for the candidate's.
const (
	shortestPause = 500 * time.Microsecond
	pause         = 3 * time.Millisecond
	longestPause  = 25 * time.Millisecond
	patience      = 250 * time.Millisecond
)

// pauseAfter is how long the next question waits when the last one took so long, and an answer was waited for so long already. It grows, so that
// waiting does not make itself longer, but an answer is seen late by a tenth at most, or by the first pause: when questions came every 3 ms, asking
// and answering took more of an emulated machine under 50 changes a second than the candidate did.
func pauseAfter(took, waited time.Duration) time.Duration {
	return min(max(shortestPause, min(took*3/2, pause), waited/10), longestPause)
}

// ErrNotInTime says that the limit came before the answer.
var ErrNotInTime = errors.New("not in time")

var (
	errOthers = errors.New("others answer")
	errNobody = errors.New("nobody has answered yet")
)

// Ask makes one request over a connection and from an address of its own, and returns the endpoint that answered. It has to be called inside
// of the pod: see Inside.
func (w *World) Ask(ctx context.Context, to netip.AddrPort) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := backend.Ask(ctx, backend.TCP, to, w.Source())
	return reply.Local.Addr(), err
}

// Inside runs f inside of the pod.
func (w *World) Inside(f func() error) error { return w.Pod.Do(f) }

// askers is how many questions of Until may be open at once. One that has no answer after hedge is joined by another, for a packet may have
// been lost in the moment before the answer was to be had; patience ends it before all askers wait.
const (
	askers       = 16
	hedge        = patience / askers
	firstHedge   = 2 * time.Millisecond
	hedgeLonger  = 4 // times what a question took that was answered
	hedgeGrowing = 2
)

// hedges says how long each next question waits for those that are open.
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
func (w *World) Until(ctx context.Context, to netip.AddrPort, want netip.Addr, limit time.Duration) (time.Time, error) {
	at, err := w.until(ctx, func(ctx context.Context) (netip.Addr, error) { return w.Ask(ctx, to) }, want, limit)
	if err != nil {
		err = fmt.Errorf("ask %s: %w", to, err)
	}
	return at, err
}

// until is Until with the function that asks one question.
func (w *World) until(ctx context.Context, ask func(context.Context) (netip.Addr, error), want netip.Addr, limit time.Duration) (time.Time, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of questions that are still open
	answers := make(chan answer, askers)
	last := errNobody
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

// Connect opens connections for a while, one after the other, each with one request, to the addresses in turn, and returns how many a
// second were answered. They end with a reset, for a closed connection is remembered for minutes on the way. It has to be called inside of the pod.
func (w *World) Connect(ctx context.Context, to []netip.AddrPort, length time.Duration) (float64, error) {
	start, n := time.Now(), 0
	for n == 0 || time.Since(start) < length {
		if err := w.connect(ctx, to[n%len(to)]); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

func (w *World) connect(ctx context.Context, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, longPatience)
	defer cancel()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.Source(), 0))}
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetLinger(0)
	return exchange(ctx, conn)
}

// longPatience is for a request that has to be answered.
const longPatience = 20 * time.Second

var question = []byte("ask\n")

// exchange makes one request.
func exchange(ctx context.Context, conn net.Conn) error {
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := conn.Write(question); err != nil {
		return err
	}
	var reply [256]byte
	_, err := conn.Read(reply[:])
	return err
}

// Request makes one request after the other over one connection for a while, and returns how many a second were answered. It has to be
// called inside of the pod.
func (w *World) Request(ctx context.Context, to netip.AddrPort, length time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, length+longPatience)
	defer cancel()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.Source(), 0))}
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	start, n := time.Now(), 0
	for n == 0 || time.Since(start) < length {
		if err := exchange(ctx, conn); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(start).Seconds(), nil
}
