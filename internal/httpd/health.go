package httpd

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// HealthOptions say where a HealthHandler gets its facts. Report is required.
type HealthOptions struct {
	// Report is asked for each request, by one goroutine at a time. It gets a
	// deadline; one that does not come back turns every path red.
	Report func(ctx context.Context) Report
	// Count gets the path (/healthz, /livez, /readyz) and the code, 200 or 503, of each reply. It
	// may be nil.
	Count func(path string, code int)
	// Now is the clock of the bodies; nil is time.Now.
	Now func() time.Time
}

// HealthHandler answers /healthz and /livez as kube-proxy does, and /readyz; any
// method, everything else is 404. A 503 names the checks that do not hold, and not why:
// any client that reaches the node can ask, and a reason has addresses and texts of errors.
// The reasons are for the agent's own socket, its log and its metrics.
func HealthHandler(o HealthOptions) http.Handler {
	if o.Report == nil {
		panic("httpd: a health handler needs a report")
	}
	if o.Count == nil {
		o.Count = func(string, int) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &health{HealthOptions: o, desk: desk{report: o.Report}}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", h.healthz)
	mux.HandleFunc("/livez", h.livez)
	mux.HandleFunc("/readyz", h.readyz)
	return mux
}

type health struct {
	HealthOptions
	desk desk
}

// document is the body of /healthz and /livez: kube-proxy's fields in its order,
// and behind them the checks that make an answer red.
type document struct {
	LastUpdated  time.Time         `json:"lastUpdated"`
	CurrentTime  time.Time         `json:"currentTime"`
	NodeEligible *bool             `json:"nodeEligible,omitempty"` // only in /healthz
	Healthy      bool              `json:"healthy"`                // in any state of the node
	Status       map[string]family `json:"status,omitempty"`
	Failing      []string          `json:"failing,omitempty"`
}

type family struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// readiness is the body of /readyz.
type readiness struct {
	Ready  bool        `json:"ready"`
	Checks []readyLine `json:"checks"`
}

type readyLine struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
}

// healthz is for load balancers: it drains a node that is about to go, too.
func (h *health) healthz(w http.ResponseWriter, r *http.Request) {
	report := h.ask(r)
	body := h.document(report, failing(report.Checks, func(c Check) bool { return c.Health }))
	body.NodeEligible = &report.NodeEligible
	if !report.NodeEligible {
		body.Failing = append(body.Failing, "node")
	}
	h.send(w, "/healthz", body)
}

// livez is for the kubelet: a node that is about to go is no reason to restart.
func (h *health) livez(w http.ResponseWriter, r *http.Request) {
	report := h.ask(r)
	h.send(w, "/livez", h.document(report, failing(report.Checks, func(c Check) bool { return c.Live })))
}

func (h *health) readyz(w http.ResponseWriter, r *http.Request) {
	body := readiness{Ready: true, Checks: []readyLine{}}
	for _, c := range h.ask(r).Checks {
		if !c.Ready {
			continue
		}
		body.Checks = append(body.Checks, readyLine{Name: c.Name, OK: c.Reason == ""})
		body.Ready = body.Ready && c.Reason == ""
	}
	h.reply(w, "/readyz", body.Ready, body)
}

// ask returns a fresh report. When none comes, it is the latest there was with a
// check on top that turns everything red: old values are still worth reading.
func (h *health) ask(r *http.Request) Report {
	ctx, cancel := context.WithTimeout(r.Context(), reportWithin)
	defer cancel()
	report, ok := h.desk.ask(ctx)
	if !ok {
		hangs := Check{Name: "report", Reason: "no answer from the agent within " + reportWithin.String(), Health: true, Live: true, Ready: true}
		report.Checks = append([]Check{hangs}, report.Checks...) // the report itself is shared
	}
	return report
}

func (h *health) document(r Report, failing []string) document {
	d := document{
		LastUpdated: r.newest(),
		CurrentTime: h.Now(),
		Healthy:     len(failing) == 0,
		Status:      make(map[string]family, len(r.Families)),
		Failing:     failing,
	}
	for _, f := range r.Families {
		d.Status[f.Name] = family{LastUpdated: f.Updated, Healthy: f.Healthy}
	}
	return d
}

// send answers with a document; it is green when every check holds.
// A green one was "last updated" now: kube-proxy once stamped each round of its
// loop, changes or not, and those who compare the two times still count on it.
func (h *health) send(w http.ResponseWriter, path string, d document) {
	green := len(d.Failing) == 0
	if green {
		d.LastUpdated = d.CurrentTime
	}
	h.reply(w, path, green, d)
}

func (h *health) reply(w http.ResponseWriter, path string, green bool, body any) {
	code := http.StatusServiceUnavailable
	if green {
		code = http.StatusOK
	}
	h.Count(path, code)
	sendJSON(w, code, body)
}

// sendJSON writes a compact document without a newline.
func sendJSON(w http.ResponseWriter, code int, body any) {
	text, err := json.Marshal(body)
	if err != nil { // a time outside the years JSON can write
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(text) // the client went away
}

// failing are the names of the checks on one path that do not hold.
func failing(checks []Check, on func(Check) bool) []string {
	var names []string
	for _, c := range checks {
		if on(c) && c.Reason != "" {
			names = append(names, c.Name)
		}
	}
	return names
}
