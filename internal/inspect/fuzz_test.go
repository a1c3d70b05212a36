package inspect_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// everything answers whatever the socket can be asked.
type everything struct {
	inspect.Lists
	inspect.Explainer
}

func (everything) Status(context.Context) (agent.Status, error) { return sample, nil }

// FuzzRequests: a client that may open the socket may send any bytes. Each request that is one has
// an answer, a refusal has a reason, and what is called JSON is.
func FuzzRequests(f *testing.F) {
	for _, path := range []string{
		"/v1/status", "/v1/services?service=shop/cart&node=a", "/v1/frontends?address=10.96.0.10", "/v1/backends?endpoint=10.244.0.5", "/v1/names",
		"/v1/pending", "/v1/conflicts", "/v1/draining", "/v1/explain?service=shop/cart&from=192.0.2.1", "/v1/explain?address=[fd00::a]:53/sctp",
		"/v1/rows?kind=servers", "/v1/rows?kind=pods", "/metrics", "/v1/services?service=%zz", "/",
	} {
		f.Add([]byte("GET " + path + " HTTP/1.1\r\nHost: agent\r\n\r\n"))
	}
	f.Add([]byte("POST /v1/explain HTTP/1.1\r\nHost: agent\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 13\r\n\r\nservice=a%2Fb"))
	f.Add([]byte("GET /v1/explain HTTP/1.1\r\nHost: agent\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 9\r\n\r\n--x\r\n\r\n--"))
	h := inspect.Handler(everything{&lists{known: cluster()}, teller{}}, http.NotFoundHandler(), unwell)
	f.Fuzz(func(t *testing.T, b []byte) {
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		body := w.Body.String()
		switch {
		case w.Code >= 400 && w.Code != http.StatusNotFound && strings.TrimSpace(body) == "":
			t.Errorf("status %d without a word", w.Code)
		case w.Code >= 500 && w.Code != http.StatusServiceUnavailable:
			t.Errorf("status %d: %s", w.Code, body)
		case w.Code == http.StatusOK && w.Header().Get("Content-Type") == "application/json" && !json.Valid([]byte(body)):
			t.Errorf("not JSON: %s", body)
		}
	})
}

// FuzzAnswers: a client reads the answers of any process that took the socket's place. It
// ends, and what it takes for an answer can be shown.
func FuzzAnswers(f *testing.F) {
	h := inspect.Handler(everything{&lists{known: cluster()}, teller{}}, http.NotFoundHandler(), unwell)
	for _, path := range []string{"/v1/status", "/v1/services", "/v1/frontends", "/v1/backends", "/v1/names", "/v1/conflicts", "/v1/explain?service=a/b"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		var answer bytes.Buffer
		if err := w.Result().Write(&answer); err != nil {
			f.Fatal(err)
		}
		f.Add(answer.Bytes())
	}
	f.Add([]byte("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n{"))
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n{\"items\":[{}],\"error\":\"stuck\"}"))
	path := filepath.Join(f.TempDir(), "agent.sock")
	l, err := inspect.Listen(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = l.Close() })
	var answer atomic.Pointer[[]byte]
	go imposter(l, &answer)
	c := inspect.NewClient(path)
	f.Fuzz(func(t *testing.T, b []byte) {
		answer.Store(&b)
		s, err := c.Status(t.Context())
		if err == nil {
			err = inspect.WriteStatus(io.Discard, s)
		}
		whole(t, err)
		_, err = c.Explain(t.Context(), agent.Query{Service: "a/b"})
		whole(t, err)
		_, err = c.Names(t.Context(), inspect.Filter{})
		whole(t, err)
		services, err := c.Services(t.Context(), inspect.Filter{})
		shown(t, inspect.ServiceTable(), services.Items, err)
		frontends, err := c.Frontends(t.Context(), inspect.Filter{})
		shown(t, inspect.FrontendTable(), frontends.Items, err)
		backends, err := c.Backends(t.Context(), inspect.Filter{})
		shown(t, inspect.BackendTable(), backends.Items, err)
		moving, err := c.Draining(t.Context(), inspect.Filter{})
		shown(t, inspect.MovingTable(time.Now()), moving.Items, err)
	})
}

// whole fails for an error that tells nothing.
func whole(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.TrimSpace(err.Error()) == "" {
		t.Error("an error without a message")
	}
}

func shown[R any](t *testing.T, table inspect.Table[R], rows []R, err error) {
	t.Helper()
	if err == nil {
		err = table.Write(io.Discard, rows, inspect.TableOptions{Wide: true})
	}
	whole(t, err)
}

// imposter answers every question alike.
func imposter(l net.Listener, answer *atomic.Pointer[[]byte]) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = conn.Write(*answer.Load())
		_ = conn.Close()
	}
}
