package apiprobe_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/apiprobe"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// listen opens a port of this machine, and serves each connection with f.
func listen(t *testing.T, f func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer c.Close()
				f(c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); group.Wait() })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// TestHandshake: an endpoint that answers anything is alive. One that hangs, closes or refuses is not.
func TestHandshake(t *testing.T) {
	api := httptest.NewTLSServer(http.NotFoundHandler())
	defer api.Close()
	strict := httptest.NewUnstartedServer(http.NotFoundHandler())
	strict.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
	strict.Config.ErrorLog = log.New(io.Discard, "", 0)
	strict.StartTLS()
	defer strict.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	at := func(s *httptest.Server) netip.AddrPort { return s.Listener.Addr().(*net.TCPAddr).AddrPort() }
	closed := listen(t, func(net.Conn) {})
	for _, tt := range []struct {
		name string
		to   netip.AddrPort
		want string // part of the error; empty is an answer
	}{
		{"an API server", at(api), ""},
		{"one that answers with an alert", at(strict), ""},
		{"one in plain text", at(plain), ""},
		{"one that hangs", listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), "does not answer a TLS handshake in time"},
		{"one that hangs in its answer", listen(t, func(c net.Conn) {
			_, _ = c.Write([]byte{22, 3, 3, 0, 100})
			_, _ = io.Copy(io.Discard, c)
		}), "does not answer a TLS handshake in time"},
		{"one that closes", closed, "closes connections"},
		{"none", netip.MustParseAddrPort("127.0.0.1:1"), "connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			err := apiprobe.Handshake(ctx, tt.to)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("it fails: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// quiet is a log that a server and a test share.
type quiet struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (q *quiet) Write(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.text.Write(b)
}

// TestHandshakeLeavesNoTrace: a probe is no request, and no line in the log of an API server, which
// asks for the certificates of clients as this server does.
func TestHandshakeLeavesNoTrace(t *testing.T) {
	var noise quiet
	const probes = 50
	requests := 0
	closed := make(chan struct{}, probes)
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	api.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	api.Config.ErrorLog = log.New(&noise, "", 0)
	api.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			closed <- struct{}{}
		}
	}
	api.StartTLS()
	for range probes {
		if err := apiprobe.Handshake(t.Context(), api.Listener.Addr().(*net.TCPAddr).AddrPort()); err != nil {
			t.Fatal(err)
		}
	}
	for range probes {
		poll.Receive(t, "the server to end a connection", closed)
	}
	api.Close()
	if requests > 0 || noise.text.Len() > 0 {
		t.Errorf("%d requests, log %q", requests, noise.text.String())
	}
}
