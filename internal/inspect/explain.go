package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// Paths of those who ask why something works, or does not.
const (
	pathExplain = "/v1/explain"
	pathRows    = "/v1/rows"
)

// Explainer is asked for stories and rows; *agent.Agent is one.
type Explainer interface {
	Explain(ctx context.Context, q agent.Query) (agent.Report, error)
	Rows(ctx context.Context, kind string) (func(io.Writer) error, error)
}

// handleExplain serves /v1/explain?service=ns/name or ?address=ip[:port[/proto]], both with
// &from=ip, and /v1/rows?kind=servers.
func handleExplain(mux *http.ServeMux, e Explainer) {
	mux.HandleFunc("GET "+pathExplain, func(w http.ResponseWriter, req *http.Request) {
		text := req.FormValue("service")
		if text == "" {
			text = req.FormValue("address")
		}
		q, err := agent.ParseQuery(text, req.FormValue("from"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), answerWithin)
		defer cancel()
		s, err := e.Explain(ctx, q)
		if err != nil {
			busy(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s) // the client went away
	})
	mux.HandleFunc("GET "+pathRows, func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), answerWithin)
		defer cancel()
		write, err := e.Rows(ctx, req.FormValue("kind"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = write(w) // the client went away
	})
}

// Explain asks for the story of a Service, or of an address.
func (c *Client) Explain(ctx context.Context, q agent.Query) (agent.Report, error) {
	v := url.Values{}
	if q.Service != "" {
		v.Set("service", q.Service)
	} else {
		v.Set("address", q.String())
		if q.Port == 0 && q.Protocol != 0 {
			v.Set("address", q.Address.String()+"/"+q.Protocol.String())
		}
	}
	if q.From.IsValid() {
		v.Set("from", q.From.String())
	}
	var s agent.Report
	body, err := c.get(ctx, pathExplain+"?"+v.Encode())
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fmt.Errorf("read the report about %s: %w", q, err)
	}
	return s, nil
}

// Rows asks for the desired rows of one kind, as text.
func (c *Client) Rows(ctx context.Context, kind string) (string, error) {
	body, err := c.get(ctx, pathRows+"?"+url.Values{"kind": {kind}}.Encode())
	return string(body), err
}
