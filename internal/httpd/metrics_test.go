package httpd_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
)

// says is a handler that answers with the method of its request.
func says(what string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "%s %s\n", r.Method, what) })
}

func status() httpd.StatusInfo {
	return httpd.StatusInfo{
		Version: "1.2.3", Emulation: "1.37", GoVersion: "go1.26.0",
		Started: noon, Uptime: 26*time.Hour + 3*time.Minute + 4*time.Second + 999*time.Millisecond,
	}
}

// full has everything but profiling.
func full() httpd.MetricsOptions {
	return httpd.MetricsOptions{
		Metrics: says("metrics"),
		SLIs:    says("slis"),
		Mode:    func() string { return "ipvs" },
		Configz: func() ([]byte, error) {
			return []byte(`{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration","mode":"ipvs"}}`), nil
		},
		Flags:  func() [][2]string { return [][2]string{{"v", "2"}, {"proxy-mode", "ipvs"}, {"bind-address", ""}} },
		Status: status,
		Verbosity: func(level string) error {
			if _, err := strconv.ParseUint(level, 10, 32); err != nil {
				return fmt.Errorf("set the verbosity: %w", err)
			}
			return nil
		},
	}
}

var debug = []string{
	"/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/profile",
	"/debug/pprof/trace", "/debug/flags", "/debug/flags/", "/debug/flags/v",
}

func TestMetricsPaths(t *testing.T) {
	p := serve(t, httpd.MetricsHandler(full()))
	golden.Check(t, "metrics_paths.txt", p.transcript(t, append(
		gets("/healthz", "/healthz/ping", "/proxyMode", "/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz"),
		call{method: "DELETE", target: "/metrics/slis"},
		call{method: "POST", target: "/proxyMode"},
		call{method: "PUT", target: "/configz", body: "{}"},
		call{method: "HEAD", target: "/healthz"},
	)...))
	golden.Check(t, "metrics_unknown.txt", p.transcript(t, append(
		gets("/", "/livez", "/readyz", "/healthz/", "/healthz/log", "/metrics/", "//metrics", "/proxymode", "/metrics/cadvisor"),
		gets(debug...)...,
	)...))
}

func TestMetricsHealthz(t *testing.T) {
	p := serve(t, httpd.MetricsHandler(httpd.MetricsOptions{}))
	golden.Check(t, "metrics_healthz.txt", p.transcript(t, gets(
		"/healthz?verbose", "/healthz?verbose=false", "/healthz?exclude=ping", "/healthz?verbose&exclude=ping",
		"/healthz?verbose&exclude=etcd", "/healthz?verbose&exclude=ping&exclude=log&exclude=etcd&exclude=log", "/healthz?verbose&exclude=",
		"/healthz/ping?verbose",
	)...))
}

// A path without a handler answers 404.
func TestMetricsPathsOfNothing(t *testing.T) {
	p := serve(t, httpd.MetricsHandler(httpd.MetricsOptions{Profiling: true}))
	for _, path := range []string{"/proxyMode", "/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz", "/debug/flags", "/debug/flags/v"} {
		if got := p.do(t, call{target: path}); got.code != http.StatusNotFound {
			t.Errorf("%s: %s, want 404", path, got.status)
		}
	}
}

func TestConfigzThatFails(t *testing.T) {
	o := full()
	o.Configz = func() ([]byte, error) { return nil, errors.New("no such field") }
	golden.Check(t, "metrics_configz_fails.txt", serve(t, httpd.MetricsHandler(o)).transcript(t, gets("/configz")...))
}

func TestZPagesInTheFormAskedFor(t *testing.T) {
	o := full()
	const full = ";g=config.k8s.io;v=v1beta1;as="
	var calls []call
	for _, page := range [][2]string{{"/flagz", "Flagz"}, {"/statusz", "Statusz"}} {
		for _, accept := range []string{
			"text/plain", "*/*", " ", "application/json" + full + page[1], "application/json;g=config.k8s.io;v=v1alpha1;as=" + page[1],
			"application/*" + full + page[1], "text/plain;q=0.2, application/json;q=0.9" + full + page[1],
			"application/json;g=config.k8s.io;v=v9;as=" + page[1] + ",*/*", "bad;;, text/*",
		} {
			calls = append(calls, call{target: page[0], accept: accept})
		}
		for _, accept := range []string{"application/json", "text/html", "application/json" + full + "Other", "text/plain" + full + page[1]} {
			calls = append(calls, call{target: page[0], accept: accept})
		}
	}
	golden.Check(t, "metrics_zpages.txt", serve(t, httpd.MetricsHandler(o)).transcript(t, calls...))
}

func TestStatuszOfABareBuild(t *testing.T) {
	o := full()
	o.Metrics, o.SLIs, o.Flags = nil, nil, nil
	o.Status = func() httpd.StatusInfo {
		return httpd.StatusInfo{Version: "devel", GoVersion: "go1.26.0", Started: noon.In(zone), Uptime: -time.Second}
	}
	p := serve(t, httpd.MetricsHandler(o))
	golden.Check(t, "metrics_statusz_bare.txt", p.transcript(t, call{target: "/statusz"}, call{target: "/statusz", accept: "application/json;g=config.k8s.io;v=v1beta1;as=Statusz"}))
}

func TestProfiling(t *testing.T) {
	o := full()
	o.Profiling = true
	p := serve(t, httpd.MetricsHandler(o))
	golden.Check(t, "metrics_profiling.txt", p.transcript(t,
		call{target: "/debug/pprof"},
		call{target: "/debug/pprof/", hide: true},
		call{target: "/debug/pprof/heap", hide: true},
		call{target: "/debug/pprof/goroutine?debug=1", hide: true},
		call{target: "/debug/pprof/profile?seconds=1", hide: true},
		call{target: "/debug/pprof/trace?seconds=0.01", hide: true},
		call{target: "/debug/pprof/symbol"},
		call{target: "/debug/pprof/cmdline"},
		call{target: "/debug/pprof/nothing"},
		call{target: "/debug"},
		call{target: "/statusz"},
	))
}

func TestVerbosity(t *testing.T) {
	o := full()
	o.Profiling = true
	p := serve(t, httpd.MetricsHandler(o))
	golden.Check(t, "metrics_flags.txt", p.transcript(t,
		call{target: "/debug/flags"},
		call{target: "/debug/flags/other"},
		call{method: "PUT", target: "/debug/flags/v", body: "4"},
		call{method: "PUT", target: "/debug/flags/v", body: "four"},
		call{method: "PUT", target: "/debug/flags/v"},
		call{method: "PUT", target: "/debug/flags/v", body: strings.Repeat("4", 65)},
		call{target: "/debug/flags/v"},
		call{method: "POST", target: "/debug/flags/v", body: "4"},
		call{method: "DELETE", target: "/debug/flags/v"},
	))
}

func TestVerbosityThatIsNotSentToItsEnd(t *testing.T) {
	levels := make(chan string, 1)
	o := full()
	o.Profiling = true
	o.Verbosity = func(level string) error { levels <- level; return nil }
	p := serve(t, httpd.MetricsHandler(o))
	conn := p.dial(t)
	if _, err := io.WriteString(conn, "PUT /debug/flags/v HTTP/1.1\r\nHost: node\r\nContent-Length: 2\r\n\r\n1"); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	p.do(t, call{method: "PUT", target: "/debug/flags/v", body: "3"})
	if diff := cmp.Diff("3", <-levels); diff != "" {
		t.Errorf("level set (-want +got):\n%s", diff)
	}
}

func TestMetricsUnderManyRequests(t *testing.T) {
	o := full()
	o.Profiling = true
	p := serve(t, httpd.MetricsHandler(o))
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for _, c := range append(gets("/healthz?verbose", "/flagz", "/statusz", "/configz", "/metrics", "/debug/flags"), call{method: "PUT", target: "/debug/flags/v", body: "1"}) {
				if got := p.do(t, c); got.code != http.StatusOK {
					t.Errorf("%s: %s %s", c, got.status, got.body)
				}
			}
		})
	}
	group.Wait()
}
