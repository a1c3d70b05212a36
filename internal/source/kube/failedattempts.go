package kube

import (
	"context"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reporterKey is the key of a context for the receiver of failed attempts.
type reporterKey struct{}

func withReporter(ctx context.Context, tell func(error)) context.Context {
	return context.WithValue(ctx, reporterKey{}, tell)
}

// report wraps a transport. client-go tries many things again by itself, for minutes, and hides
// some: a watch that timed out ten times is an empty watch, without an error. Progress must show
// the first failed attempt. And it reads whatever it is sent; see allowance.
func report(next http.RoundTripper) http.RoundTripper { return &reporter{next} }

type reporter struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r *reporter) RoundTrip(q *http.Request) (*http.Response, error) {
	a, err := r.next.RoundTrip(q)
	if err == nil {
		bound(q, a)
	}
	tell, ok := q.Context().Value(reporterKey{}).(func(error))
	switch {
	case !ok || q.Context().Err() != nil:
	case err != nil: // with the server's address, as the caller of http.Client sees the error
		tell(&url.Error{Op: q.Method, URL: q.URL.Redacted(), Err: err})
	case a.Header.Get("Retry-After") != "" && (a.StatusCode == http.StatusTooManyRequests || a.StatusCode >= http.StatusInternalServerError):
		tell(apierrors.NewGenericServerResponse(a.StatusCode, q.Method, schema.GroupResource{}, "", a.Status, 0, true))
	}
	return a, err
}

// WrappedRoundTripper lets client-go find the connections below.
func (r *reporter) WrappedRoundTripper() http.RoundTripper { return r.next }
