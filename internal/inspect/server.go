package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// Paths of the socket's HTTP server.
const (
	pathStatus  = "/v1/status"
	pathMetrics = "/metrics"
	pathHealth  = "/v1/health"
)

// answerWithin bounds one answer. A loop that does not come round in that time is
// stuck, or at its first write of a large cluster: saying so is the answer.
const answerWithin = 5 * time.Second

// Reader is what the server asks; *agent.Agent is one.
type Reader interface {
	Status(ctx context.Context) (agent.Status, error)
	Lists
}

// Handler serves the state of the agent, its metrics and what its health is judged by:
// health answers without the loop, so that a loop that hangs can be seen.
func Handler(r Reader, metrics http.Handler, health func(context.Context) []HealthRow) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+pathHealth, listing(func(ctx context.Context, _ Filter, out *listWriter) error {
		for _, row := range health(ctx) {
			out.row(row)
		}
		return nil
	}))
	mux.Handle("GET "+pathMetrics, metrics)
	handleLists(mux, r)
	mux.HandleFunc("GET "+pathStatus, func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), answerWithin)
		defer cancel()
		s, err := r.Status(ctx)
		if err != nil {
			busy(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s) // the client went away
	})
	if e, ok := r.(Explainer); ok {
		handleExplain(mux, e)
	}
	if a, ok := r.(Auditor); ok {
		handleAudit(mux, a)
	}
	return mux
}

// busy answers in place of a loop that did not.
func busy(w http.ResponseWriter, err error) {
	http.Error(w, "the loop of the agent is busy or stuck: "+err.Error(), http.StatusServiceUnavailable)
}

// Listen opens the socket with mode 0600, in place of one that a process left
// behind. The caller has made sure that no other agent serves it.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create run directory: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove stale socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect socket: %w", err), l.Close())
	}
	return l, nil
}

// Serve answers on l until ctx ends; it returns nil then.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: answerWithin, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return nil
}
