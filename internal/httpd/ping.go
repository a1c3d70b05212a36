package httpd

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// The /healthz of the metrics port is that of every Kubernetes component: a list
// of named checks of which this one has a single one, ping, that always holds.
// The health of the proxy is on the other port.

// pingHealth answers ok; ?verbose lists the check, ?exclude=ping leaves it out,
// and an exclude that names no check is warned of in the list.
func pingHealth(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if !query.Has("verbose") {
		sendText(w, "ok")
		return
	}
	excluded := slices.Compact(slices.Sorted(slices.Values(query["exclude"])))
	line := "[+]ping ok\n"
	if at, found := slices.BinarySearch(excluded, "ping"); found {
		line = "[+]ping excluded: ok\n"
		excluded = slices.Delete(excluded, at, at+1)
	}
	if len(excluded) > 0 {
		line += "warn: some health checks cannot be excluded: no matches for " + quoted(excluded) + "\n"
	}
	sendText(w, line+"healthz check passed\n")
}

// ping is the check by itself. Its type is left to be guessed from the body, as
// in every component: the header that forbids guessing is on the list alone.
func ping(w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprint(w, "ok")
}

func quoted(names []string) string {
	var out []string
	for _, name := range names {
		out = append(out, fmt.Sprintf("%q", name))
	}
	return strings.Join(out, ",")
}
