package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// patience bounds one request; answers are slow under emulation, and a lost one must not look like a slow one.
const patience = 20 * time.Second

// ask makes one TCP request over a connection of its own; it is to be called inside a namespace.
func ask(limit time.Duration, to netip.AddrPort) (backend.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return backend.Ask(ctx, backend.TCP, to, netip.Addr{})
}

// ask makes n requests and counts their outcomes.
func (s *space) ask(to netip.AddrPort, n int) *backend.Tally {
	tally := &backend.Tally{}
	err := s.do(func() error {
		for range n {
			tally.Add(ask(patience, to))
		}
		return nil
	})
	if err != nil {
		tally.Add(backend.Reply{}, err)
	}
	return tally
}

// wantAnswers fails the test unless each of n requests is answered.
func wantAnswers(t *testing.T, what string, s *space, to netip.AddrPort, n int) {
	t.Helper()
	if got := s.ask(to, n); got.OK != n {
		t.Errorf("%s: %d of %d requests from %s to %s were answered\n%s", what, got.OK, n, s.name, to, text(got))
	}
}

// wantNoAnswer waits until no backend answers any more.
func wantNoAnswer(t *testing.T, what string, s *space, to netip.AddrPort) {
	t.Helper()
	poll(t, what, settleTimeout, func() error {
		return s.do(func() error {
			if reply, err := ask(time.Second, to); err == nil {
				return answered(reply.Name)
			}
			return nil
		})
	})
}

// answered is the error of an unwanted answer.
type answered string

func (a answered) Error() string { return string(a) + " still answers" }

// stream is a client that asks all the time, each request over a connection of its own, or all over one.
type stream struct {
	name  string
	asked atomic.Int64

	cancel context.CancelFunc
	done   sync.WaitGroup
	tally  backend.Tally
	slow   time.Duration // the longest request
}

// pace is the pause between two requests of a stream.
const pace = 50 * time.Millisecond

// stream starts asking; the connection of one that holds it is open when this returns.
func (s *space) stream(t *testing.T, to netip.AddrPort) *stream {
	t.Helper()
	return s.run(t, "new connections", func() (backend.Reply, error) { return ask(patience, to) })
}

// hold starts asking over one connection that is open when this returns.
func (s *space) hold(t *testing.T, to netip.AddrPort) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var conn *backend.Conn
	err := s.do(func() (err error) {
		conn, err = backend.Dial(ctx, backend.TCP, to, netip.Addr{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s.run(t, "one connection", func() (backend.Reply, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return conn.Ask(ctx)
	})
}

func (s *space) run(t *testing.T, kind string, once func() (backend.Reply, error)) *stream {
	ctx, cancel := context.WithCancel(context.Background())
	st := &stream{name: s.name + ", " + kind, cancel: cancel}
	st.done.Go(func() {
		_ = s.do(func() error {
			for ctx.Err() == nil {
				start := time.Now()
				st.tally.Add(once())
				st.slow = max(st.slow, time.Since(start))
				st.asked.Add(1)
				time.Sleep(pace)
			}
			return nil
		})
	})
	t.Cleanup(st.end)
	return st
}

func (s *stream) end() {
	s.cancel()
	s.done.Wait()
}

// streams are clients of different kinds at once.
type streams []*stream

// traffic starts a stream of new connections and a held one, from the pod and from the node itself.
func (w *world) traffic(t *testing.T, to netip.AddrPort) streams {
	t.Helper()
	return streams{w.pod.stream(t, to), w.node.stream(t, to), w.pod.hold(t, to), w.node.hold(t, to)}
}

// more waits until each has asked n times more.
func (ss streams) more(t *testing.T, n int64) {
	t.Helper()
	for _, s := range ss {
		want := s.asked.Load() + n
		poll(t, "stream "+s.name+" to go on", settleTimeout, func() error {
			if s.asked.Load() < want {
				return answered("not enough: no backend")
			}
			return nil
		})
	}
}

// check ends them and fails for each request that got no answer, and for a held connection that changed its backend.
func (ss streams) check(t *testing.T) {
	t.Helper()
	for _, s := range ss {
		s.end()
		figure(t, s.name, requests{s.tally.OK, s.tally.Failures(), s.slow})
		if s.tally.Failures() > 0 || s.tally.OK == 0 {
			t.Errorf("%s\n%s", s.name, text(&s.tally))
		}
		if strings.HasSuffix(s.name, "one connection") && len(s.tally.Backends) != 1 {
			t.Errorf("%s was answered by %v", s.name, s.tally.Backends)
		}
	}
}

// text prints a tally for a failure message.
func text(tally *backend.Tally) string {
	var b strings.Builder
	_ = tally.Print(&b)
	return b.String()
}

// requests is a figure of a stream.
type requests struct {
	ok, failed int
	slowest    time.Duration
}

func (r requests) String() string {
	return fmt.Sprintf("%5d answered, %d failed, slowest %s", r.ok, r.failed, r.slowest.Round(time.Millisecond))
}
