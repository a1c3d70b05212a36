package healthcheck

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"
)

// answer is the response of a port. The document is kube-proxy's, field by field; load balancers
// and their operators read it.
type answer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// replier answers every request, whatever its path and method, with the claim that
// holds the port at that moment.
type replier struct {
	claim   atomic.Pointer[claim]
	healthy func() bool
}

// ServeHTTP implements http.Handler.
func (r *replier) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c := r.claim.Load()
	a := answer{LocalEndpoints: c.ready, ServiceProxyHealthy: r.healthy()}
	a.Service.Namespace, a.Service.Name = c.service.Namespace, c.service.Name
	body, err := json.MarshalIndent(a, "", "\t")
	if err != nil { // text and a number: it cannot be
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(a.LocalEndpoints))
	status := http.StatusServiceUnavailable
	if a.LocalEndpoints > 0 && a.ServiceProxyHealthy {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client went away
}
