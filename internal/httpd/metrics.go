package httpd

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// component is the name on /flagz and /statusz: clients of this port expect kube-proxy, and the
// version identifies kube-ipvs.
const component = "kube-proxy"

// MetricsOptions say what a MetricsHandler shows. A path whose field is nil does
// not exist. The functions are called by many goroutines at once.
type MetricsOptions struct {
	Metrics http.Handler           // /metrics
	SLIs    http.Handler           // /metrics/slis; that DELETE resets is its business
	Mode    func() string          // /proxyMode: ipvs or iptables
	Configz func() ([]byte, error) // /configz: a JSON object, by group of configuration
	// Flags are the name and value of each flag, in any order, without secrets.
	Flags     func() [][2]string
	Status    func() StatusInfo
	Verbosity func(level string) error // PUT /debug/flags/v; an error is the client's
	Profiling bool                     // adds /debug/pprof and /debug/flags
}

// StatusInfo has the facts that /statusz shows about the process.
type StatusInfo struct {
	Version   string // version of this program
	Emulation string // the minor version of Kubernetes it behaves as; may be empty
	GoVersion string
	Started   time.Time // shown in the zone it has
	Uptime    time.Duration
}

// MetricsHandler serves the paths of kube-proxy's metrics port. Its /healthz only shows that
// the process answers.
func MetricsHandler(o MetricsOptions) http.Handler {
	r := &routes{exact: map[string]http.Handler{}}
	r.list("/healthz", pingHealth)
	r.list("/healthz/ping", ping)
	if o.SLIs != nil {
		r.list("/metrics/slis", o.SLIs.ServeHTTP)
	}
	if o.Mode != nil {
		r.list("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { sendText(w, o.Mode()) })
	}
	if o.Metrics != nil {
		r.list("/metrics", o.Metrics.ServeHTTP)
	}
	if o.Profiling {
		r.addDebug(o.Verbosity)
	}
	if o.Configz != nil {
		r.list("/configz", configz(o.Configz))
	}
	if o.Flags != nil {
		r.list("/flagz", flagz(o.Flags))
	}
	if o.Status != nil {
		r.list("/statusz", statusz(o.Status, r.folders()))
	}
	return r
}

// routes finds a handler by the path as it was sent: exactly, or by the folder it
// is in. Unlike http.ServeMux it never redirects to a cleaner path; kube-proxy's
// does not either.
type routes struct {
	exact  map[string]http.Handler
	below  []folder
	listed []string // shown on /statusz
}

type folder struct {
	prefix  string
	handler http.HandlerFunc
}

func (r *routes) list(path string, h http.HandlerFunc) {
	r.exact[path] = h
	r.listed = append(r.listed, path)
}

// ServeHTTP implements http.Handler.
func (r *routes) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if h, ok := r.exact[req.URL.Path]; ok {
		h.ServeHTTP(w, req)
		return
	}
	for _, f := range r.below {
		if strings.HasPrefix(req.URL.Path, f.prefix) {
			f.handler(w, req)
			return
		}
	}
	http.NotFound(w, req)
}

// folders are the first elements of the listed paths, sorted.
func (r *routes) folders() []string {
	var names []string
	for _, path := range r.listed {
		first, _, _ := strings.Cut(path[1:], "/")
		names = append(names, "/"+first)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func configz(read func() ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		body, err := read()
		if err != nil {
			http.Error(w, fmt.Sprintf("read the configuration: %v", err), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body)
	}
}

// sendText writes a body as it is: /proxyMode has no newline.
func sendText(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(body))
}
