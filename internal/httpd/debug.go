package httpd

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"time"
)

const (
	// A verbosity is a small number; a longer or slower request is refused.
	maxVerbosityBytes = 64
	verbosityWithin   = 5 * time.Second
)

// flagIndex is the page of /debug/flags and of everything below that is no flag.
const flagIndex = `<html>
<head>
<title>/debug/flags/</title>
</head>
<body>
/debug/flags/<br>
<br>
flags:<br>
<table>
<tr>v<br>
</table>
<br>
full flags configurable<br>
</body>
</html>
`

// addDebug adds what only --profiling opens. There is no cmdline, as in
// kube-proxy: arguments can hold what a profile does not. None of it is listed.
func (r *routes) addDebug(verbosity func(string) error) {
	r.exact["/debug/pprof"] = http.RedirectHandler("/debug/pprof/", http.StatusFound)
	r.exact["/debug/pprof/profile"] = http.HandlerFunc(pprof.Profile)
	r.exact["/debug/pprof/symbol"] = http.HandlerFunc(pprof.Symbol)
	r.exact["/debug/pprof/trace"] = http.HandlerFunc(pprof.Trace)
	r.below = append(r.below, folder{"/debug/pprof/", pprof.Index})
	if verbosity == nil {
		return
	}
	index := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, flagIndex) }
	r.exact["/debug/flags"] = http.HandlerFunc(index)
	r.exact["/debug/flags/v"] = setVerbosity(verbosity)
	r.below = append(r.below, folder{"/debug/flags/", index})
}

// setVerbosity takes the body of a PUT as the new level.
func setVerbosity(set func(string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			sendLine(w, http.StatusNotAcceptable, "unsupported http method")
			return
		}
		// A recorder in a test has no connection to put a deadline on.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(verbosityWithin))
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxVerbosityBytes))
		if err != nil {
			sendLine(w, http.StatusBadRequest, "error reading request body: "+err.Error())
			return
		}
		if err := set(string(body)); err != nil {
			sendLine(w, http.StatusBadRequest, err.Error())
			return
		}
		sendLine(w, http.StatusOK, fmt.Sprintf("successfully set klog.logging.verbosity to %s", body))
	}
}

func sendLine(w http.ResponseWriter, code int, line string) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, line)
}
