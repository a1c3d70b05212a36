package httpd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
)

// pipes is a listener without a network: it works on the clock of a synctest bubble, and no other
// process can take its address.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	broken chan error // the error of Accept
}

func newPipes() *pipes {
	return &pipes{conns: make(chan net.Conn), closed: make(chan struct{}), broken: make(chan error, 1)}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case err := <-p.broken:
		return nil, err
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "pipe"} }

func (p *pipes) listen(context.Context, string, string) (net.Listener, error) { return p, nil }

func (p *pipes) dial(t *testing.T) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	select {
	case p.conns <- server:
	case <-p.closed:
		t.Fatal("connection refused: the listener is closed")
	}
	return client
}

// serve serves a handler on pipes until the test ends.
func serve(t *testing.T, h http.Handler) *pipes {
	t.Helper()
	p := newPipes()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- httpd.Serve(ctx, zap.NewNop(), httpd.Listener{Name: "test", Address: "pipes", Handler: h, Listen: p.listen})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return p
}

// call is one request; the method is GET unless said.
type call struct {
	method, target, accept, body string
	// hide replaces a body that is never twice the same.
	hide bool
}

func (c call) String() string {
	var b strings.Builder
	b.WriteString("$ curl -i")
	if c.method != "" {
		fmt.Fprintf(&b, " -X %s", c.method)
	}
	if c.accept != "" {
		fmt.Fprintf(&b, " -H 'Accept: %s'", c.accept)
	}
	if c.body != "" {
		fmt.Fprintf(&b, " -d '%s'", c.body)
	}
	return b.String() + " '" + c.target + "'"
}

// answer is a response that was read to its end.
type answer struct {
	proto, status string
	code          int
	header        http.Header
	body          string
}

// do sends a request on a connection of its own.
func (p *pipes) do(t *testing.T, c call) answer {
	t.Helper()
	conn := p.dial(t)
	defer conn.Close()
	req, err := http.NewRequest(c.method, "http://node"+c.target, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	if c.accept != "" {
		req.Header.Set("Accept", c.accept)
	}
	sent := make(chan error, 1)
	go func() { sent <- req.Write(conn) }()
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatalf("%s: %v", c, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: read the body: %v", c, err)
	}
	if err := <-sent; err != nil {
		t.Fatalf("%s: send: %v", c, err)
	}
	return answer{resp.Proto, resp.Status, resp.StatusCode, resp.Header, string(body)}
}

// transcript is what a terminal shows after a list of requests: headers sorted,
// without the date and the header about the end of the connection.
func (p *pipes) transcript(t *testing.T, calls ...call) string {
	t.Helper()
	var b strings.Builder
	for _, c := range calls {
		got := p.do(t, c)
		fmt.Fprintf(&b, "%s\n%s %s\n", c, got.proto, got.status)
		got.header.Del("Date")
		if c.hide {
			got.header.Del("Content-Length")
			got.body = "(a body that differs each time)\n"
		}
		for _, name := range slices.Sorted(maps.Keys(got.header)) {
			fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(got.header[name], ", "))
		}
		if !strings.HasSuffix(got.body, "\n") {
			got.body += "\n(no newline at the end)\n"
		}
		fmt.Fprintf(&b, "\n%s\n", got.body)
	}
	return b.String()
}

// gets are plain requests.
func gets(targets ...string) []call {
	var calls []call
	for _, target := range targets {
		calls = append(calls, call{target: target})
	}
	return calls
}
