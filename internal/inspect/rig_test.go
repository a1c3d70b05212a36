package inspect_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	goldenfile "github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
)

func golden(t *testing.T, name, got string) {
	t.Helper()
	goldenfile.Check(t, name, got)
}

// unwell is an agent one of whose checks fails.
func unwell(context.Context) []inspect.HealthRow {
	return []inspect.HealthRow{
		{Check: "loop", OK: true, Paths: []string{"healthz", "livez", "readyz"}},
		{Check: "watch", Paths: []string{"readyz"}, Reason: "the API server has sent nothing about services for 3m0s: connection refused"},
	}
}

// status is the status of an answer.
func status(t *testing.T, h http.Handler, path string) int {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code
}

// halting is a socket that answers one question with a beginning.
func halting(t *testing.T, beginning string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent.sock")
	l, err := inspect.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if _, err := c.Read(make([]byte, 4096)); err == nil {
			_, _ = io.WriteString(c, beginning)
		}
	}()
	return path
}
