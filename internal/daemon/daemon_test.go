package daemon

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// metricsListener is the handler of port 10249 without an agent behind it.
func metricsListener(t *testing.T, args ...string) (http.Handler, *daemon) {
	flags, defaults := pflag.NewFlagSet("test", pflag.ContinueOnError), config.Defaults()
	config.Bind(flags, &defaults)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.NewLoader(flags).Load("node-a")
	if err != nil {
		t.Fatal(err)
	}
	p := &daemon{started: time.Now(), live: newLiveConfig(loaded.Config), metrics: telemetry.New(),
		reload: &reloader{flags: flags, level: zap.NewAtomicLevel()}}
	p.metrics.Families([]model.Family{model.IPv4})
	return p.metricsHandler(loaded.Config), p
}

func ask(h http.Handler, method, path, body string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// Each path of the listener is joined to what it tells about.
func TestMetricsListener(t *testing.T) {
	h, _ := metricsListener(t, "--ipvs-scheduler=wlc", "--source-dir=/etc/manifests")
	for _, tt := range []struct {
		path string
		code int
		says string
	}{
		{"/healthz", 200, "ok"},
		{"/proxyMode", 200, "ipvs"},
		{"/metrics", 200, "kubeproxy_proxy_healthz_total"},
		{"/metrics/slis", 200, `kubernetes_healthcheck{name="ping",type="healthz"} 1`},
		{"/configz", 200, `"scheduler":"wlc"`},
		{"/configz", 200, `"sourceDir":"/etc/manifests"`},
		{"/flagz", 200, "ipvs-scheduler=wlc"},
		{"/statusz", 200, "/metrics"},
		{"/debug/pprof/", 404, ""},
		{"/readyz", 404, ""},
	} {
		code, body := ask(h, "GET", tt.path, "")
		if code != tt.code || !strings.Contains(body, tt.says) {
			t.Errorf("%s: %d, want %d with %q:\n%s", tt.path, code, tt.code, tt.says, body)
		}
	}
}

func TestProfilingIsAskedFor(t *testing.T) {
	h, p := metricsListener(t, "--profiling")
	if code, _ := ask(h, "GET", "/debug/pprof/", ""); code != http.StatusOK {
		t.Errorf("profiles: %d", code)
	}
	for _, tt := range []struct {
		level string
		code  int
		want  string
	}{{"4", 200, "debug"}, {"2", 200, "info"}, {"much", 400, "info"}, {"-1", 400, "info"}} {
		code, body := ask(h, "PUT", "/debug/flags/v", tt.level)
		if code != tt.code || p.reload.level.String() != tt.want {
			t.Errorf("level %s: %d, logs at %s, want %d, %s: %s", tt.level, code, p.reload.level.String(), tt.code, tt.want, body)
		}
	}
}

// Work that is deferred at the start waits until every row was written once, up to a limit.
func TestAfterStart(t *testing.T) {
	const most = 10 * time.Second
	for _, tt := range []struct {
		name        string
		filled, end time.Duration // 0 is never
		after       time.Duration
		want        bool
	}{
		{name: "the start is over", filled: 3 * time.Second, after: 3 * time.Second, want: true},
		{name: "it never is", after: most, want: true},
		{name: "the process ends before", filled: 3 * time.Second, end: time.Second, after: time.Second, want: false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := &daemon{filled: make(chan struct{})}
				if tt.filled > 0 {
					time.AfterFunc(tt.filled, func() { close(p.filled) })
				}
				if tt.end > 0 {
					time.AfterFunc(tt.end, cancel)
				}
				began := time.Now()
				if got := p.afterStart(ctx, most); got != tt.want || time.Since(began) != tt.after {
					t.Errorf("%v after %s, want %v after %s", got, time.Since(began), tt.want, tt.after)
				}
			})
		})
	}
}
