package clusterui

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
)

//go:embed assets
var assets embed.FS

// Ask asks all nodes a question.
type Ask func(ctx context.Context, q cluster.Question) (cluster.Report, error)

// Server serves the pages.
type Server struct {
	ask   Ask
	every time.Duration
	// secret begins every path, so that other users and other pages of this machine find nothing.
	secret string

	overview cache[overview]
	mu       sync.Mutex
	services map[string]*cache[detail] // by namespace/name
}

// mostServices bounds the Services whose pages are kept.
const mostServices = 100

// New returns a server that asks at most once in an interval.
func New(ask Ask, every time.Duration) *Server {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return &Server{ask: ask, every: every, secret: hex.EncodeToString(b[:]), services: map[string]*cache[detail]{}}
}

// Listen opens a listener, which has to be on loopback.
func Listen(ctx context.Context, at string) (net.Listener, error) {
	ap, err := netip.ParseAddrPort(at)
	if err != nil || !ap.Addr().IsLoopback() {
		return nil, fmt.Errorf("%q is no loopback address with a port, such as 127.0.0.1:0", at)
	}
	var c net.ListenConfig
	return c.Listen(ctx, "tcp", at)
}

// URL is where a browser finds the page.
func (s *Server) URL(l net.Listener) string {
	return fmt.Sprintf("http://%s/%s/", l.Addr(), s.secret)
}

// Limits of a connection.
const (
	headerWithin = 5 * time.Second
	largestHead  = 16 << 10
)

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: headerWithin, MaxHeaderBytes: largestHead, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler returns the pages.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	root := "/" + s.secret + "/"
	mux.HandleFunc("GET "+root+"{$}", page(s.grid))
	mux.HandleFunc("GET "+root+"service", page(s.service))
	for _, name := range []string{"page.css", "page.js"} {
		mux.HandleFunc("GET "+root+name, func(w http.ResponseWriter, req *http.Request) {
			http.ServeFileFS(w, req, assets, "assets/"+name)
		})
	}
	return guarded(mux)
}

// guarded refuses a request for another host, which a page from elsewhere makes by a name that leads to
// this machine. It lets the browser load our own files only.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		host, _, err := net.SplitHostPort(req.Host)
		if addr, bad := netip.ParseAddr(host); err != nil || (bad != nil || !addr.IsLoopback()) && host != "localhost" {
			http.Error(w, "only for this machine", http.StatusForbidden)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, req)
	})
}

// A document is a page that can be written.
type document interface{ render(*writer) }

// page serves what build returns. The whole page is made before any of it is sent.
func page(build func(*http.Request) (document, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		shown, err := build(req)
		status := http.StatusOK
		if err != nil {
			shown, status = failedPage(err.Error()), http.StatusBadGateway
			if errors.Is(err, errNoName) {
				status = http.StatusBadRequest
			}
		}
		var b writer
		shown.render(&b)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write(b.Bytes()) // the browser may be gone
	}
}

// asked asks a question. A report that was not finished, because the browser has left, is an error.
func (s *Server) asked(ctx context.Context, q cluster.Question) (cluster.Report, error) {
	r, err := s.ask(ctx, q)
	if err == nil {
		err = context.Cause(ctx)
	}
	return r, err
}

// A cache keeps an answer for a while. Requests that come meanwhile wait for one and the same answer.
type cache[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time
}

// get returns the answer, which make gives if there is none that is fresh.
func (c *cache[T]) get(fresh time.Duration, build func() (T, error)) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < fresh {
		return c.value, nil
	}
	v, err := build()
	if err == nil {
		c.value, c.at = v, time.Now()
	}
	return v, err
}
