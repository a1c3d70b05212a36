package load_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// serve starts the server of e2e/backend and returns its address and how to end it.
func serve(t *testing.T, name, address string) (netip.AddrPort, func()) {
	t.Helper()
	server, err := backend.Listen(backend.Config{Name: name, TCP: address})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(end)
	return server.Addr(backend.TCP), end
}

// visits are the clients that a listener of the test's own has accepted.
type visits struct {
	to netip.AddrPort

	mu      sync.Mutex
	clients []netip.AddrPort
	open    []net.Conn
}

// listen accepts, and has each connection treated.
func listen(t *testing.T, treat func(net.Conn)) *visits {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &visits{to: netip.MustParseAddrPort(l.Addr().String())}
	t.Cleanup(func() {
		l.Close()
		v.each(net.Conn.Close)
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			v.mu.Lock()
			v.clients = append(v.clients, netip.MustParseAddrPort(conn.RemoteAddr().String()))
			v.open = append(v.open, conn)
			v.mu.Unlock()
			go treat(conn)
		}
	}()
	return v
}

func (v *visits) each(do func(net.Conn) error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, conn := range v.open {
		_ = do(conn) // it may be closed already
	}
}

func (v *visits) seen() []netip.AddrPort {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.clients)
}

// answer talks as a backend does.
func answer(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		fmt.Fprintf(conn, "web-1 local=%s client=%s\n", conn.LocalAddr(), conn.RemoteAddr())
	}
}

func keepSilent(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }

// silentUntil returns how a server treats a connection that it neither answers nor closes
// until end is closed.
func silentUntil(end <-chan struct{}) func(net.Conn) {
	return func(conn net.Conn) {
		<-end
		conn.Close()
	}
}

func begin(t *testing.T, p load.Profile) *load.Run {
	t.Helper()
	if p.Timeout == 0 {
		p.Timeout = poll.Patience
	}
	run, err := load.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func stop(t *testing.T, run *load.Run) load.Report {
	t.Helper()
	r, err := run.Stop()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("report:\n%s", text(r))
	return r
}

func text(r load.Report) string {
	var b strings.Builder
	_ = r.Print(&b)
	return b.String()
}

// until returns the first report that has the state.
func until(t *testing.T, run *load.Run, what string, ok func(load.Report) bool) (r load.Report) {
	t.Helper()
	poll.Until(t, what, func() bool {
		r = run.Report()
		return ok(r)
	}, func() string { return text(r) })
	return r
}

func TestNewConnectionsAreCounted(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			to, _ := serve(t, "web-1", address)
			run := begin(t, load.Profile{To: to, New: 300})
			until(t, run, "200 answers", func(r load.Report) bool { return r.OK >= 200 })
			r := stop(t, run)
			if r.Started != r.OK || r.Failures() != 0 || r.Backends["web-1"] != r.OK || r.Worst() == 0 {
				t.Errorf("want all answered by web-1:\n%s", text(r))
			}
			var started, ok int
			for _, s := range r.Series {
				started, ok = started+s.Started, ok+s.OK
			}
			if started != r.Started || ok != r.OK {
				t.Errorf("the seconds have %d started and %d answered, want %d and %d", started, ok, r.Started, r.OK)
			}
		})
	}
}

func TestSourcesTakeTurns(t *testing.T) {
	v := listen(t, answer)
	sources := []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("127.0.0.4")}
	run := begin(t, load.Profile{To: v.to, Sources: sources, New: 300, Long: 3, Every: time.Second})
	until(t, run, "answers", func(r load.Report) bool { return r.OK >= 30 && r.Long.Alive == 3 })
	r := stop(t, run)
	counts := map[netip.Addr]int{}
	for _, c := range v.seen() {
		counts[c.Addr()]++
	}
	for _, s := range sources {
		if n := counts[s]; n < (r.Started+3)/3 || n > (r.Started+3)/3+1 {
			t.Errorf("%d of %d connections came from %s, want a third", n, r.Started+3, s)
		}
	}
}

func TestFailuresAreCountedByKind(t *testing.T) {
	for _, tt := range []struct {
		name string
		to   func(t *testing.T) netip.AddrPort
		want backend.Failure
	}{
		{"no listener", func(*testing.T) netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:1") }, backend.Refused},
		{"hung up", func(t *testing.T) netip.AddrPort { return listen(t, func(c net.Conn) { c.Close() }).to }, backend.Reset},
		{"no answer", func(t *testing.T) netip.AddrPort { return listen(t, keepSilent).to }, backend.Timeout},
		{"no answer's form", func(t *testing.T) netip.AddrPort {
			return listen(t, func(c net.Conn) { fmt.Fprintln(c, "hello"); keepSilent(c) }).to
		}, backend.Other},
	} {
		t.Run(tt.name, func(t *testing.T) {
			timeout := poll.Patience
			if tt.want == backend.Timeout {
				timeout = 200 * time.Millisecond
			}
			run := begin(t, load.Profile{To: tt.to(t), New: 200, Long: 2, Every: time.Hour, Timeout: timeout})
			until(t, run, "failures", func(r load.Report) bool { return r.Failures() >= 20 && r.Long.Cuts() == 2 })
			r := stop(t, run)
			if r.Failed[tt.want] != r.Started || r.OK != 0 || r.First[tt.want].Err == nil || r.First[tt.want].At.Before(r.Began) {
				t.Errorf("want only %s, with an example", tt.want)
			}
			if r.Long.Failed[tt.want] != 2 || r.Long.Opened != 0 || r.Long.Alive != 0 {
				t.Errorf("want both long connections to have failed by %s, and none opened", tt.want)
			}
		})
	}
}

// TestStartsDoNotWait: no server answers, and connections are started all the same.
func TestStartsDoNotWait(t *testing.T) {
	end := make(chan struct{})
	v := listen(t, silentUntil(end))
	run := begin(t, load.Profile{To: v.to, New: 400})
	r := until(t, run, "connections that wait together", func(r load.Report) bool { return r.Started-r.OK-r.Failures() >= 200 })
	if r.OK != 0 {
		t.Errorf("%d answers without a server", r.OK)
	}
	close(end)
	if r := stop(t, run); r.Failed[backend.Reset] != r.Started {
		t.Errorf("want a reset of each connection")
	}
}

// TestLongConnectionsAreAskedAgain counts the answers, and each connection's backend.
func TestLongConnectionsAreAskedAgain(t *testing.T) {
	to, _ := serve(t, "web-1", "127.0.0.1:0")
	run := begin(t, load.Profile{To: to, Long: 40, Every: 50 * time.Millisecond})
	until(t, run, "answers", func(r load.Report) bool { return r.Long.Answers >= 400 })
	r := stop(t, run)
	if r.Long.Opened != 40 || r.Long.Alive != 40 || r.Long.Cuts() != 0 || r.Started != 0 {
		t.Errorf("want 40 that live")
	}
	for i, c := range r.Long.Conns {
		if c.Backend != "web-1" || c.Answers < 5 || c.Failure != "" || c.Client.Port() == 0 || c.Worst == 0 {
			t.Errorf("connection %d: %+v", i, c)
		}
	}
}

// TestACutIsCountedOnce: a connection that was cut while idle is counted once, and not opened
// again.
func TestACutIsCountedOnce(t *testing.T) {
	for name, cut := range map[string]func(net.Conn) error{
		"in order": net.Conn.Close,
		"by a reset": func(c net.Conn) error {
			return errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := listen(t, answer)
			run := begin(t, load.Profile{To: v.to, Long: 3, Every: 20 * time.Millisecond})
			until(t, run, "three that live", func(r load.Report) bool { return r.Long.Alive == 3 })
			v.each(cut)
			r := until(t, run, "three that were cut", func(r load.Report) bool { return r.Long.Alive == 0 })
			after := stop(t, run)
			if r.Long.Opened != 3 || r.Long.Failed[backend.Reset] != 3 || after.Long.Cuts() != 3 || len(v.seen()) != 3 {
				t.Errorf("want three cuts and three dials, got %d dials", len(v.seen()))
			}
			for _, c := range after.Long.Conns {
				if c.Failure != backend.Reset || c.Backend != "web-1" || c.Cut.Err == nil || c.Cut.At.Before(r.Began) {
					t.Errorf("connection %+v", c)
				}
			}
		})
	}
}

// TestSilenceCutsLongConnections: a connection that is not answered in time does not count as alive. A busy machine may miss the
// time of the first answer; the test then tries a longer one.
func TestSilenceCutsLongConnections(t *testing.T) {
	timeout := 300 * time.Millisecond
	for ; timeout <= poll.Patience; timeout *= 3 {
		if r := silenced(t, timeout); r.Long.Opened == 2 {
			if r.Long.Alive != 0 || r.Long.Answers != 2 {
				t.Errorf("want one answer each")
			}
			return
		}
	}
	t.Errorf("the first answers did not come within %s", timeout/3)
}

// silenced is the report of two long connections that were cut because only their first request was answered.
func silenced(t *testing.T, timeout time.Duration) load.Report {
	t.Helper()
	v := listen(t, func(c net.Conn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		fmt.Fprintln(c, "web-1 once")
		keepSilent(c)
	})
	run := begin(t, load.Profile{To: v.to, Long: 2, Every: 20 * time.Millisecond, Timeout: timeout})
	until(t, run, "two cuts", func(r load.Report) bool { return r.Long.Failed[backend.Timeout] == 2 })
	return stop(t, run)
}

func TestPortsAreUsedAgain(t *testing.T) {
	v := listen(t, answer)
	ports := load.Ports{First: 23400, Last: 23409}
	run := begin(t, load.Profile{To: v.to, Sources: []netip.Addr{netip.MustParseAddr("127.0.0.5")}, Ports: ports, New: 300, Reset: true})
	until(t, run, "each port to have been used often", func(r load.Report) bool { return r.OK >= 100 })
	r := stop(t, run)
	used := map[uint16]int{}
	for _, c := range v.seen() {
		used[c.Port()]++
	}
	if len(used) != 10 || slices.Min(slices.Collect(maps.Keys(used))) != ports.First || slices.Max(slices.Collect(maps.Keys(used))) != ports.Last {
		t.Errorf("ports %v, want %d to %d", used, ports.First, ports.Last)
	}
	// A late run starts up to 32 connections in one turn, so that all ten ports may be in use for a moment: NoPort may be above 0.
	if r.Started != r.OK {
		t.Errorf("want all answered")
	}
}

// TestNoPortIsNoFailure: a client without a free port has no opinion about the network.
func TestNoPortIsNoFailure(t *testing.T) {
	end := make(chan struct{})
	v := listen(t, silentUntil(end))
	run := begin(t, load.Profile{To: v.to, Ports: load.Ports{First: 23500, Last: 23503}, New: 200})
	r := until(t, run, "all ports to be taken", func(r load.Report) bool { return r.NoPort >= 20 })
	if r.Started < 4 || r.Failed[backend.Other] > 0 {
		t.Errorf("want four under way:\n%s", text(r))
	}
	close(end)
	stop(t, run)
}

func TestEnterIsCalledOnce(t *testing.T) {
	to, _ := serve(t, "web-1", "127.0.0.1:0")
	calls := 0
	run := begin(t, load.Profile{To: to, New: 100, Long: 2, Every: time.Second, Enter: func(f func() error) error {
		calls++
		return f()
	}})
	until(t, run, "answers", func(r load.Report) bool { return r.OK >= 5 })
	stop(t, run)
	if calls != 1 {
		t.Errorf("%d calls, want 1", calls)
	}
	broken := errors.New("no such namespace")
	_, err := load.Start(t.Context(), load.Profile{To: to, New: 1, Timeout: time.Second, Enter: func(func() error) error { return broken }})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	_, err = load.Start(t.Context(), load.Profile{To: to, New: 1, Timeout: time.Second, Enter: func(func() error) error { return nil }})
	if err == nil {
		t.Error("a run that never ran has begun")
	}
}

func TestContextEndsARun(t *testing.T) {
	to, _ := serve(t, "web-1", "127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	run, err := load.Start(ctx, load.Profile{To: to, New: 100, Timeout: poll.Patience})
	if err != nil {
		t.Fatal(err)
	}
	until(t, run, "answers", func(r load.Report) bool { return r.OK >= 5 })
	cancel()
	poll.Receive(t, "the end of the run", run.Ended())
	if r := stop(t, run); r.OK != r.Started {
		t.Errorf("the end of a run is no failure:\n%s", text(r))
	}
}
