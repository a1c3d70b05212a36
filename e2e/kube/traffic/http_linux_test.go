package traffic

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// anyTime is a time as kube-proxy prints one in JSON.
const anyTime = `"\d{4}-\d\d-\d\dT[^"]+"`

// family is the part of /healthz about one.
func family(name string) string {
	return `"` + name + `":{"lastUpdated":` + anyTime + `,"healthy":true}`
}

// TestHTTP requests each path of kube-proxy's health and metrics listeners, and those of kube-ipvs, from the running program.
func TestHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	p := newAgent(t, w, a.kubeconfigFor(t, cluster.Admin))
	p.start(t)
	p.answers(t, "/readyz", 200, settleTimeout)
	both := family("IPv4") + "," + family("IPv6")
	for _, tt := range []struct {
		port int
		path string
		code int
		body string // a regular expression for all of it
	}{
		{healthPort, "/healthz", 200, `\{"lastUpdated":` + anyTime + `,"currentTime":` + anyTime + `,"nodeEligible":true,"healthy":true,"status":\{` + both + `\}\}`},
		{healthPort, "/livez", 200, `\{"lastUpdated":` + anyTime + `,"currentTime":` + anyTime + `,"healthy":true,"status":\{` + both + `\}\}`},
		{healthPort, "/readyz", 200, `\{"ready":true,"checks":\[(\{"name":"[a-z ]+","ok":true\},?)+\]\}`},
		{healthPort, "/metrics", 404, `404 page not found\n`},
		{metricsPort, "/healthz", 200, `ok`},
		{metricsPort, "/healthz/ping", 200, `ok`},
		{metricsPort, "/healthz?verbose", 200, `\[\+\]ping ok\nhealthz check passed\n`},
		{metricsPort, "/proxyMode", 200, `ipvs`},
		{metricsPort, "/configz", 200, `(?s)\{.*"kubeproxy.config.k8s.io":\s*\{.*"kind":\s*"KubeProxyConfiguration".*\}\n?`},
		{metricsPort, "/metrics/slis", 200, `(?s).*kubernetes_healthcheck\{name="ping",type="healthz"\} 1\n.*`},
		{metricsPort, "/flagz", 200, `(?s).*hostname-override.?` + thisNode + `\n.*`},
		{metricsPort, "/statusz", 200, `(?s).*/proxyMode.*`},
		{metricsPort, "/debug/pprof/", 404, `404 page not found\n`},
	} {
		got, err := p.get(tt.port, tt.path)
		if err != nil || got.code != tt.code || !regexp.MustCompile(`^`+tt.body+`$`).MatchString(got.body) {
			t.Errorf("%d%s: %d, error %v, want %d and %s\n%s", tt.port, tt.path, got.code, err, tt.code, tt.body, got.body)
		}
	}
	wantMetrics(t, p)

	must(t, a.KillAPIServer(t.Context()))
	p.terminate(t)
}

// wantMetrics compares what the program serves with the table of what it has of kube-proxy's metrics.
func wantMetrics(t *testing.T, p *proxy) {
	t.Helper()
	page, err := p.get(metricsPort, "/metrics")
	must(t, err)
	table, err := os.ReadFile(filepath.Join(os.Getenv("KUBE_IPVS_SRC"), "internal/telemetry/testdata/kube-proxy.txt"))
	must(t, err)
	served := 0
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != 6 || !strings.HasPrefix(cells[1], "kubeproxy_") {
			continue
		}
		want := strings.HasPrefix(cells[5], "served")
		if got := strings.Contains(page.body, "# TYPE "+cells[1]+" "+cells[2]+"\n"); got != want {
			t.Errorf("%s: served %t, want %t", cells[1], got, want)
		}
		if want {
			served++
		}
	}
	if served < 10 {
		t.Errorf("%d metrics of kube-proxy in the table, want ten at least", served)
	}
	figure(t, "metrics of kube-proxy served", served)
	for _, name := range []string{"rest_client_requests_total", "kubernetes_build_info", "kubernetes_feature_enabled", "kube_ipvs_watch_age_seconds", "kube_ipvs_source_synced"} {
		if !strings.Contains(page.body, "# TYPE "+name+" ") {
			t.Errorf("%s is not served", name)
		}
	}
}
