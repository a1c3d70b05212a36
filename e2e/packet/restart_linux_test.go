package packet

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// stream is a client that asks all the time, each request over a connection of its own.
type stream struct {
	name   string
	asked  atomic.Int64
	cancel context.CancelFunc
	done   sync.WaitGroup
	tally  backend.Tally
	slow   time.Duration // the longest request
}

// pace is the pause between two requests of a stream: faster gains nothing and takes the CPU from the agent.
const pace = 20 * time.Millisecond

// stream starts asking.
func (p *pod) stream(t *testing.T, proto backend.Proto, addr string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{name: p.name + " " + string(proto) + " " + addr, cancel: cancel}
	to := netip.MustParseAddrPort(hostPort(addr, 80))
	s.done.Go(func() {
		_ = p.do(func() error {
			for ctx.Err() == nil {
				s.once(proto, to, p.source(addr))
				time.Sleep(pace)
			}
			return nil
		})
	})
	t.Cleanup(func() { s.end() })
	return s
}

func (s *stream) once(proto backend.Proto, to netip.AddrPort, source netip.Addr) {
	start := time.Now()
	s.tally.Add(once(patience, proto, to, source))
	s.slow = max(s.slow, time.Since(start))
	s.asked.Add(1)
}

func (s *stream) end() {
	s.cancel()
	s.done.Wait()
}

// streams are clients of different kinds at once.
type streams []*stream

// more waits until each has asked n times more.
func (ss streams) more(t *testing.T, n int64) {
	t.Helper()
	for _, s := range ss {
		want := s.asked.Load() + n
		for deadline := time.Now().Add(settleTimeout); s.asked.Load() < want; time.Sleep(pace) {
			if time.Now().After(deadline) {
				t.Fatalf("stream %s stands still after %d requests", s.name, s.asked.Load())
			}
		}
	}
}

// check ends them and fails for each request that got no answer.
func (ss streams) check(t *testing.T) {
	t.Helper()
	table := newTable("stream", "requests", "failed", "longest", "answers by backend")
	for _, s := range ss {
		s.end()
		table.row(s.name, s.tally.OK+s.tally.Failures(), s.tally.Failures(), s.slow.Round(time.Millisecond), s.tally.Backends)
		if s.tally.Failures() > 0 {
			t.Errorf("stream %s\n%s", s.name, text(&s.tally))
		}
	}
	t.Logf("streams\n%s", table)
}

// held is a connection that stays open.
type held struct {
	conn *backend.Conn
	name string
}

func (p *pod) hold(t *testing.T, proto backend.Proto, addr string) held {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var conn *backend.Conn
	err := p.do(func() (err error) {
		conn, err = backend.Dial(ctx, proto, netip.MustParseAddrPort(hostPort(addr, 80)), p.source(addr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	h := held{conn: conn}
	h.name = h.ask(t)
	return h
}

func (h held) ask(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := h.conn.Ask(ctx)
	if err != nil {
		t.Errorf("a connection that was open before: %v", err)
	}
	return r.Name
}

// TestRestartsFailNoRequest crashes, stops and starts the agent while requests run, and edits manifests while it is down.
func TestRestartsFailNoRequest(t *testing.T) {
	w := newWorld(t)
	web := w.web(t)
	w.pod3.serve(t, 8080)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, web)
	n.start(t)
	before := w.node.look(t, "nft")
	open := []held{w.outside.hold(t, backend.TCP, web.vip.v4), w.host().hold(t, backend.TCP, web.vip.v6), w.pod3.hold(t, backend.SCTP, web.vip.v4)}
	ss := streams{
		w.pod3.stream(t, backend.HTTP, web.vip.v4), w.host().stream(t, backend.TCP, web.vip.v6),
		w.outside.stream(t, backend.TCP, web.vip.v4), w.visitor.stream(t, backend.UDP, web.vip.v4),
	}
	ss.more(t, 30)

	n.kill(t)
	ss.more(t, 30)
	same(t, "kernel after a crash", before, w.node.look(t, "nft"))
	if s := n.start(t); s.Cycles != 0 {
		t.Errorf("start after a crash wrote %v, want nothing", s.Written)
	}
	ss.more(t, 30)

	took, err := n.stop(t)
	t.Logf("SIGTERM: ended after %s", took.Round(time.Millisecond))
	if err != nil {
		t.Errorf("SIGTERM: %v, want exit status 0", err)
	}
	same(t, "kernel after SIGTERM", before, w.node.look(t, "nft"))
	ss.more(t, 30)

	web.backends = append(web.backends, endpoints(w.pod3)...)
	n.write(t, web, service{name: "new", vip: pair{v4: "10.96.0.21"}, ports: webPorts()[:1], backends: endpoints(w.pod3)})
	s := n.start(t)
	ss.more(t, 30)
	wantRows(t, "edits while the agent was down", s, map[string]uint64{
		"members": 6 + 2, // a hairpin entry for each port of the endpoint, and the new VIP in two sets
		"servers": 1, "destinations": 6 + 1, "addresses": 1,
	})
	if got := w.outside.ask(backend.TCP, "10.96.0.21", 80, 1); got.Backends["pod-3"] != 1 {
		t.Errorf("the new Service:\n%s", text(got))
	}
	for _, h := range open {
		if name := h.ask(t); name != h.name {
			t.Errorf("an open connection went from %s to %s", h.name, name)
		}
	}
	ss.check(t)
}

// wantRows compares the rows that were written since the start of the process.
func wantRows(t *testing.T, what string, s agent.Status, want map[string]uint64) {
	t.Helper()
	t.Logf("%s: %d cycles, rows written %v", what, s.Cycles, s.Written)
	for _, row := range s.Tables {
		if s.Written[row.Table] != want[row.Table] {
			t.Errorf("%s: %d rows of %s written, want %d", what, s.Written[row.Table], row.Table, want[row.Table])
		}
	}
}
