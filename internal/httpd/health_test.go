package httpd_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
)

var (
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	zone   = time.FixedZone("", 2*3600)
	source = httpd.Check{Name: "source", Health: true, Ready: true}
	apply  = httpd.Check{Name: "apply", Health: true, Ready: true}
	loop   = httpd.Check{Name: "loop", Health: true, Live: true, Ready: true}
)

// well is a node with nothing wrong.
func well() httpd.Report {
	return httpd.Report{
		Families: []httpd.Family{
			{Name: "IPv6", Updated: noon.Add(-2 * time.Second), Healthy: true},
			{Name: "IPv4", Updated: noon.Add(-time.Second).In(zone), Healthy: true},
		},
		NodeEligible: true,
		Checks:       []httpd.Check{source, apply, loop},
	}
}

// not is a check that does not hold.
func not(c httpd.Check, reason string) httpd.Check {
	c.Reason = reason
	return c
}

func fixed() time.Time { return noon }

func handler(r httpd.Report) http.Handler {
	return httpd.HealthHandler(httpd.HealthOptions{Report: func(context.Context) httpd.Report { return r }, Now: fixed})
}

func TestHealthBodies(t *testing.T) {
	tests := []struct {
		name   string
		change func(*httpd.Report)
	}{
		{"well", func(*httpd.Report) {}},
		{"node_not_eligible", func(r *httpd.Report) { r.NodeEligible = false }},
		{"source_behind", func(r *httpd.Report) { r.Checks[0] = not(source, "manifests: not in sync") }},
		{"loop_stuck", func(r *httpd.Report) {
			r.Families[1].Healthy = false
			r.Checks[2] = not(loop, "no round for 2m0s")
		}},
		{"everything_wrong", func(r *httpd.Report) {
			*r = httpd.Report{Checks: []httpd.Check{
				not(source, "kube: no progress for 11m0s"), not(apply, "5 in a row failed: servers: <busy>"), not(loop, "no round for 2m0s"),
			}}
		}},
		{"live_alone", func(r *httpd.Report) {
			r.Checks = []httpd.Check{{Name: "memory", Reason: "grows", Live: true}}
		}},
		{"ready_alone", func(r *httpd.Report) {
			r.Checks = append(r.Checks, httpd.Check{Name: "first sync", Reason: "not done", Ready: true})
		}},
		{"nothing_to_check", func(r *httpd.Report) { *r = httpd.Report{NodeEligible: true} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := well()
			tt.change(&r)
			got := serve(t, handler(r)).transcript(t, gets("/healthz", "/livez", "/readyz")...)
			for _, c := range r.Checks {
				if c.Reason != "" && strings.Contains(got, c.Reason) {
					t.Errorf("strangers are told why %s does not hold: %q", c.Name, c.Reason)
				}
			}
			golden.Check(t, "health_"+tt.name+".txt", got)
		})
	}
}

func TestHealthTakesAnyMethodAndNoOtherPath(t *testing.T) {
	p := serve(t, handler(well()))
	var calls []call
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		for _, method := range []string{"HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
			calls = append(calls, call{method: method, target: path})
		}
	}
	golden.Check(t, "health_methods.txt", p.transcript(t, calls...))
	golden.Check(t, "health_unknown.txt", p.transcript(t, gets("/", "/healthz/", "/healthz/ping", "/livez/x", "/readyz/", "/metrics", "/Healthz", "/debug/pprof/", "//healthz", "/healthz?verbose")...))
}

func TestHealthCountsReplies(t *testing.T) {
	var got []string
	r := well()
	r.Checks[0] = not(source, "not in sync") // not a matter of life
	p := serve(t, httpd.HealthHandler(httpd.HealthOptions{
		Report: func(context.Context) httpd.Report { return r },
		Count:  func(path string, code int) { got = append(got, path+" "+http.StatusText(code)) },
	}))
	p.transcript(t, gets("/healthz", "/livez", "/readyz", "/livez", "/other")...)
	want := []string{"/healthz Service Unavailable", "/livez OK", "/readyz Service Unavailable", "/livez OK"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// The report changes under the probes; each body must be of one report.
func TestHealthUnderManyProbes(t *testing.T) {
	var mu sync.Mutex
	var asked int
	p := serve(t, httpd.HealthHandler(httpd.HealthOptions{
		Report: func(context.Context) httpd.Report {
			mu.Lock()
			defer mu.Unlock()
			r := well()
			if asked++; asked%2 == 0 {
				r.NodeEligible = false
				r.Checks[2] = not(loop, "stuck")
			}
			return r
		},
		Count: func(string, int) {},
	}))
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range 10 {
				for _, path := range []string{"/healthz", "/livez", "/readyz"} {
					got := p.do(t, call{target: path})
					if red := strings.Contains(got.body, `"failing"`) || strings.Contains(got.body, `"ok":false`); red != (got.code == http.StatusServiceUnavailable) {
						t.Errorf("%s: %s with %s", path, got.status, got.body)
					}
				}
			}
		})
	}
	group.Wait()
}

// JSON has no years of five digits; that is a fault and not an empty green answer.
func TestAHealthBodyThatCannotBeWritten(t *testing.T) {
	r := well()
	r.Families[0].Updated = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	if got := serve(t, handler(r)).do(t, call{target: "/livez"}); got.code != http.StatusInternalServerError {
		t.Errorf("%s %s, want 500", got.status, got.body)
	}
}

func TestHealthNeedsAReport(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a handler without a report was made")
		}
	}()
	httpd.HealthHandler(httpd.HealthOptions{})
}
