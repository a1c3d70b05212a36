package httpd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/connlimit"
)

const (
	defaultRetry = 5 * time.Second
	// sayAgain is how often a failure that lasts is logged.
	sayAgain = 5 * time.Minute

	headerWithin   = 5 * time.Second
	bodyWithin     = 10 * time.Second // with the header; no handler needs a body
	answerWithin   = 3 * time.Minute  // a profile of two minutes, and its way to the client
	idleFor        = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	// grace is the time that requests under way get at the end, within the two seconds that
	// the agent has to stop.
	grace = 500 * time.Millisecond
)

// Listener is a place where a handler is served.
type Listener struct {
	Name    string // for logs: health, metrics
	Address string // host:port; empty: not served
	Handler http.Handler
	// HardFail makes the first failure the last: it is passed to Failed (may be nil), then
	// returned. Otherwise it is tried again after Retry (0: 5 s).
	HardFail bool
	Failed   func(error)
	Retry    time.Duration
	// Listen opens the socket; nil is that of net.ListenConfig.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
}

// Serve serves until the context ends, which takes it less than a second and is
// no error, or until a failure that must not be survived. An address 0.0.0.0 is
// every address of both families, where the kernel has both: kube-proxy listens
// with network "tcp" too.
func Serve(ctx context.Context, log *zap.Logger, l Listener) error {
	if l.Address == "" {
		return nil
	}
	if l.Handler == nil { // net/http would serve its global handler, profiles and all
		panic("httpd: a listener needs a handler")
	}
	if l.Retry == 0 {
		l.Retry = defaultRetry
	}
	if l.Listen == nil {
		l.Listen = (&net.ListenConfig{}).Listen
	}
	trouble := trouble{log: log.With(zap.String("name", l.Name), zap.String("address", l.Address))}
	for !over(ctx) {
		err := l.serve(ctx, &trouble)
		if over(ctx) { // requests that the end broke are no failure
			break
		}
		if l.HardFail {
			if l.Failed != nil {
				l.Failed(err)
			}
			return err
		}
		trouble.failed(err, l.Retry)
		wait(ctx, l.Retry)
	}
	return nil
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

// serve listens once and answers until the context ends (nil) or something fails.
func (l Listener) serve(ctx context.Context, t *trouble) error {
	socket, err := l.Listen(ctx, "tcp", l.Address)
	if err != nil {
		return fmt.Errorf("listen for %s at %s: %w", l.Name, l.Address, err)
	}
	server := newServer(l.Handler, t.log)
	t.works()
	ended := make(chan struct{})
	go func() { err = server.Serve(socket); close(ended) }()
	select {
	case <-ended:
		_ = server.Close() // connections that are still open
		return fmt.Errorf("serve %s at %s: %w", l.Name, l.Address, err)
	case <-ctx.Done():
		stop(server)
		<-ended
		return nil
	}
}

// newServer bounds every part of a request, and the open connections: any client that
// reaches the node can open many, and send, or read, nothing.
func newServer(h http.Handler, log *zap.Logger) *http.Server {
	errorLog, _ := zap.NewStdLogAt(log, zap.DebugLevel) // cannot fail: the level exists
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerWithin,
		ReadTimeout:       bodyWithin,
		WriteTimeout:      answerWithin,
		IdleTimeout:       idleFor,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
		ConnState:         connlimit.Bound(connlimit.Most),
	}
}

// stop lets short requests end and cuts the others off.
func stop(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if errors.Is(server.Shutdown(ctx), context.DeadlineExceeded) {
		_ = server.Close()
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// trouble logs failures: each different one at once, the same one now and then,
// even when it works for a moment in between.
type trouble struct {
	log      *zap.Logger
	last     string
	said     time.Time
	attempts int  // in vain since it last worked
	serving  bool // that it works is the last thing said
}

func (t *trouble) failed(err error, retry time.Duration) {
	t.attempts++
	if err.Error() == t.last && time.Since(t.said) < sayAgain {
		return
	}
	t.last, t.said, t.serving = err.Error(), time.Now(), false
	t.log.Warn("cannot serve the listener, will be tried again", zap.Int("attempt", t.attempts), zap.Duration("retry", retry), zap.Error(err))
}

func (t *trouble) works() {
	if !t.serving {
		t.serving = true
		t.log.Info("serving", zap.Int("attempt", t.attempts+1))
	}
	t.attempts = 0
}
