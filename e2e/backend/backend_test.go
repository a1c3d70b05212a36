package backend_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// serve starts a server for the test's duration and shows that it ends without complaint.
func serve(t *testing.T, c backend.Config) *backend.Server {
	t.Helper()
	server, err := backend.Listen(c)
	if errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Skipf("this kernel lacks it: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return server
}

// config listens for one protocol.
func config(proto backend.Proto, address string) backend.Config {
	c := backend.Config{Name: "web-1"}
	switch proto {
	case backend.HTTP:
		c.HTTP = address
	case backend.TCP:
		c.TCP = address
	case backend.UDP:
		c.UDP = address
	case backend.SCTP:
		c.SCTP = address
	}
	return c
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), poll.Patience)
	t.Cleanup(cancel)
	return ctx
}

func TestReplyNamesBothEnds(t *testing.T) {
	tests := []struct {
		name, listen, ask, source string
	}{
		{"one IPv4 address", "127.0.0.1:0", "127.0.0.1", "127.0.0.9"},
		{"one IPv6 address", "[::1]:0", "::1", "::1"},
		{"wildcard asked over IPv4", ":0", "127.0.0.5", "127.0.0.9"},
		{"wildcard asked over IPv6", ":0", "::1", "::1"},
	}
	for _, proto := range backend.Protos() {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s/%s", proto, tt.name), func(t *testing.T) {
				if proto == backend.SCTP && tt.ask == "127.0.0.5" {
					tt.ask = "127.0.0.1" // SCTP answers from the addresses that interfaces have, not from all of 127/8
				}
				server := serve(t, config(proto, tt.listen))
				to := netip.AddrPortFrom(netip.MustParseAddr(tt.ask), server.Addr(proto).Port())
				source := netip.MustParseAddr(tt.source)
				got, err := backend.Ask(limited(t), proto, to, source)
				if err != nil {
					t.Fatal(err)
				}
				if got.Client.Port() == 0 || got.Client.Addr() != source {
					t.Errorf("client %s, want a port of %s", got.Client, source)
				}
				want := backend.Reply{Name: "web-1", Local: to, Client: got.Client}
				if diff := cmp.Diff(want, got, cmp.Comparer(equal)); diff != "" {
					t.Errorf("reply (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func equal(a, b netip.AddrPort) bool { return a == b }

func TestTCPAndHTTPShareAnAddress(t *testing.T) {
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := probe.Addr().String()
	probe.Close()
	server := serve(t, backend.Config{Name: "both", TCP: address, HTTP: address})
	for _, proto := range []backend.Proto{backend.TCP, backend.HTTP} {
		if _, err := backend.Ask(limited(t), proto, server.Addr(proto), netip.Addr{}); err != nil {
			t.Errorf("%s: %v", proto, err)
		}
	}
}

// TestHTTPIsRealHTTP asks with the standard library's client, which is strict where ours is not.
func TestHTTPIsRealHTTP(t *testing.T) {
	server := serve(t, config(backend.HTTP, "127.0.0.1:0"))
	response, err := http.Get("http://" + server.Addr(backend.HTTP).String() + "/any/path?x=1")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := backend.ParseReply(string(body))
	if err != nil || reply.Name != "web-1" || response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("status %d, close %t, reply %v, error %v", response.StatusCode, response.Close, reply, err)
	}
}

func TestConnectionStaysWithItsBackend(t *testing.T) {
	for _, proto := range []backend.Proto{backend.TCP, backend.UDP, backend.SCTP} {
		t.Run(string(proto), func(t *testing.T) {
			server := serve(t, config(proto, "127.0.0.1:0"))
			conn, err := backend.Dial(limited(t), proto, server.Addr(proto), netip.Addr{})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for range 3 {
				reply, err := conn.Ask(limited(t))
				if err != nil || reply.Client != conn.LocalAddr() {
					t.Fatalf("reply %v to %s, error %v", reply, conn.LocalAddr(), err)
				}
			}
		})
	}
}

func TestFailuresAreSorted(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	rude, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer rude.Close()
	go hangUp(rude)
	tests := []struct {
		name  string
		proto backend.Proto
		to    string
		want  backend.Failure
	}{
		{"no listener", backend.TCP, "127.0.0.1:1", backend.Refused},
		{"no listener for datagrams", backend.UDP, "127.0.0.1:1", backend.Refused},
		{"no answer", backend.UDP, silent.LocalAddr().String(), backend.Timeout},
		{"hung up", backend.TCP, rude.Addr().String(), backend.Reset},
		{"hung up on HTTP", backend.HTTP, rude.Addr().String(), backend.Reset},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			timeout := poll.Patience
			if tt.want == backend.Timeout {
				timeout = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			_, err := backend.Ask(ctx, tt.proto, netip.MustParseAddrPort(tt.to), netip.Addr{})
			if got := backend.FailureOf(err); err == nil || got != tt.want {
				t.Errorf("%q from %v, want %q", got, err, tt.want)
			}
		})
	}
}

func hangUp(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}

func TestFailureOf(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want backend.Failure
	}{
		{"rejected", fmt.Errorf("ask: %w", syscall.ECONNREFUSED), backend.Refused},
		{"cut", fmt.Errorf("ask: %w", syscall.ECONNRESET), backend.Reset},
		{"written to after the end", syscall.EPIPE, backend.Reset},
		{"ended in the middle", io.ErrUnexpectedEOF, backend.Reset},
		{"deadline of the socket", os.ErrDeadlineExceeded, backend.Timeout},
		{"deadline of the context", context.DeadlineExceeded, backend.Timeout},
		{"the kernel gave up", syscall.ETIMEDOUT, backend.Timeout},
		{"filtered on the way out", fmt.Errorf("ask: %w", syscall.EPERM), backend.Denied},
		{"no route", syscall.EHOSTUNREACH, backend.Other},
		{"garbled", errors.New("reply"), backend.Other},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := backend.FailureOf(tt.err); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestParseReplyRefuses(t *testing.T) {
	for _, line := range []string{"", "web-1", "web-1 local=x client=1.2.3.4:5", "web-1 local=1.2.3.4:5 client=x", "web-1 1.2.3.4:5 client=1.2.3.4:5"} {
		if r, err := backend.ParseReply(line); err == nil {
			t.Errorf("%q was read as %v", line, r)
		}
	}
}

func TestParseReplyReadsWhatStringWrites(t *testing.T) {
	for _, line := range []string{"web-1 local=10.0.0.1:80 client=10.0.0.2:1234", "web-1 local=[fd00::1]:80 client=[fd00::2]:1234"} {
		r, err := backend.ParseReply(line)
		if err != nil || r.String() != line {
			t.Errorf("%q became %q, error %v", line, r, err)
		}
	}
}

func TestParseProto(t *testing.T) {
	for text, want := range map[string]backend.Proto{"http": backend.HTTP, "TCP": backend.TCP, "UDP": backend.UDP, "SCTP": backend.SCTP, "icmp": ""} {
		got, err := backend.ParseProto(text)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestListenRefuses(t *testing.T) {
	for name, c := range map[string]backend.Config{
		"nothing":        {Name: "x"},
		"bad TCP":        {TCP: "127.0.0.1:port"},
		"bad UDP":        {UDP: "127.0.0.1:port"},
		"bad SCTP":       {SCTP: "127.0.0.1:port"},
		"foreign":        {TCP: "192.0.2.1:0"},
		"one of several": {TCP: "127.0.0.1:0", UDP: "192.0.2.1:0"},
	} {
		if s, err := backend.Listen(c); err == nil {
			t.Errorf("%s: listens on %v", name, s)
		}
	}
}

func TestTally(t *testing.T) { synctest.Test(t, testTally) }

func testTally(t *testing.T) {
	var tally backend.Tally
	answer := func(name, client string) {
		tally.Add(backend.Reply{Name: name, Client: netip.MustParseAddrPort(client)}, nil)
	}
	answer("web-1", "10.0.0.1:1")
	answer("web-2", "10.0.0.1:2")
	answer("web-2", "10.0.0.20:1")
	answer("web-2", "10.0.0.3:1")
	tally.Add(backend.Reply{}, fmt.Errorf("ask tcp: %w", syscall.ECONNREFUSED))
	time.Sleep(1500 * time.Millisecond)
	tally.Add(backend.Reply{}, fmt.Errorf("ask again: %w", syscall.ECONNREFUSED))
	var out bytes.Buffer
	if err := tally.Print(&out); err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Add(-1500 * time.Millisecond).Format("15:04:05")
	want := `6 requests, 4 answered, 2 failed
  2 refused from ` + begin + `.000 to ` + time.Now().Format("15:04:05") + `.500, the first: ask tcp: connection refused
  backend  web-1          1  #############
  backend  web-2          3  ######################################
  client   10.0.0.1       2  #########################
  client   10.0.0.3       1  #############
  client   10.0.0.20      1  #############
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("print (-want +got):\n%s", diff)
	}
}

func TestRepeat(t *testing.T) {
	for _, proto := range backend.Protos() {
		for _, keep := range []backend.Load{{}, {Hold: true}, {OneConn: true}} {
			if proto == backend.HTTP && keep.OneConn {
				continue // an answer ends the connection
			}
			t.Run(fmt.Sprintf("%s hold=%t one=%t", proto, keep.Hold, keep.OneConn), func(t *testing.T) {
				server := serve(t, config(proto, "127.0.0.1:0"))
				keep.Proto, keep.To, keep.Timeout = proto, server.Addr(proto), poll.Patience
				got := keep.Repeat(context.Background(), 7)
				want := &backend.Tally{
					OK: 7, Backends: map[string]int{"web-1": 7}, Clients: map[netip.Addr]int{netip.MustParseAddr("127.0.0.1"): 7},
				}
				compare := cmp.Options{cmpopts.IgnoreUnexported(backend.Tally{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})}
				if diff := cmp.Diff(want, got, compare); diff != "" {
					t.Errorf("tally (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestRepeatEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	load := backend.Load{Proto: backend.TCP, To: netip.MustParseAddrPort("127.0.0.1:1"), Timeout: time.Second}
	if got := load.Repeat(ctx, 5); got.OK+got.Failures() != 0 {
		t.Errorf("asked after the end: %+v", got)
	}
}

// fickle is a TCP server that answers each request until it is cut off. From then on it hangs up on each request.
type fickle struct {
	to               netip.AddrPort
	cutOff           atomic.Bool
	accepted         atomic.Int64
	answers, hangUps atomic.Int64
}

func newFickle(t *testing.T) *fickle {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f := &fickle{to: netip.MustParseAddrPort(l.Addr().String())}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.accepted.Add(1)
			go f.serve(conn)
		}
	}()
	return f
}

func (f *fickle) serve(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		if f.cutOff.Load() {
			f.hangUps.Add(1)
			return
		}
		fmt.Fprintf(conn, "web-1 local=%s client=%s\n", conn.LocalAddr(), conn.RemoteAddr())
		f.answers.Add(1)
	}
}

// TestStreamCountsAnOutage cuts the backend of a running stream off. The stream counts the answers before and the failures after.
func TestStreamCountsAnOutage(t *testing.T) {
	for _, oneConn := range []bool{false, true} {
		t.Run(fmt.Sprintf("one connection %t", oneConn), func(t *testing.T) {
			server := newFickle(t)
			streaming, stop := context.WithCancel(context.Background())
			defer stop()
			result := make(chan *backend.Tally, 1)
			load := backend.Load{Proto: backend.TCP, To: server.to, Timeout: poll.Patience, OneConn: oneConn}
			go func() { result <- load.Stream(streaming, 200) }()

			poll.Until(t, "ten answers", func() bool { return server.answers.Load() >= 10 })
			server.cutOff.Store(true)
			poll.Until(t, "ten requests in the outage", func() bool { return server.hangUps.Load() >= 10 })
			stop()
			got := poll.Receive(t, "the end of the stream", result)
			if int64(got.OK) != server.answers.Load() || int64(got.Failed[backend.Reset]) != server.hangUps.Load() || got.Failures() != got.Failed[backend.Reset] {
				t.Errorf("the stream counts %d answers and failures %v, want %d answers and %d resets",
					got.OK, got.Failed, server.answers.Load(), server.hangUps.Load())
			}
		})
	}
}

// TestStreams: streams side by side keep a connection each, or replace it when it is old, and their tallies are joined.
func TestStreams(t *testing.T) {
	const streams = 3
	for _, life := range []time.Duration{0, time.Nanosecond} {
		t.Run(life.String(), func(t *testing.T) {
			server := newFickle(t)
			streaming, stop := context.WithCancel(context.Background())
			defer stop()
			result := make(chan *backend.Tally, 1)
			load := backend.Load{Proto: backend.TCP, To: server.to, Timeout: poll.Patience, OneConn: true, Life: life}
			go func() { result <- load.Streams(streaming, streams, 200) }()
			poll.Until(t, "all connections, and answers", func() bool { return server.accepted.Load() >= streams && server.answers.Load() >= 30 })
			stop()
			got := poll.Receive(t, "the end of the streams", result)
			want := int64(streams)
			if life > 0 {
				want = int64(got.OK)
			}
			if int64(got.OK) != server.answers.Load() || got.Failures() != 0 || got.Backends["web-1"] != got.OK || server.accepted.Load() != want {
				t.Errorf("%+v of %d answers over %d connections, want %d connections", got, server.answers.Load(), server.accepted.Load(), want)
			}
		})
	}
}
