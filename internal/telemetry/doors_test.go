package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	client "k8s.io/client-go/tools/metrics"

	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

func TestProbesAreCountedByPath(t *testing.T) {
	for _, tt := range []struct {
		name, path string
		code       int
		want       string
	}{
		{"ready for traffic", "/healthz", 200, `kubeproxy_proxy_healthz_total{code="200"} 1`},
		{"not ready for traffic", "/healthz", 503, `kubeproxy_proxy_healthz_total{code="503"} 1`},
		{"alive", "/livez", 200, `kubeproxy_proxy_livez_total{code="200"} 1`},
		{"dead", "/livez", 503, `kubeproxy_proxy_livez_total{code="503"} 1`},
		{"ready", "/readyz", 200, `kube_ipvs_readyz_total{code="200"} 1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := telemetry.New()
			m.Probed(tt.path, tt.code)
			m.Probed("/elsewhere", tt.code)
			text := get(t, m.Handler())
			wants(t, text, tt.want)
			if got := len(regexp.MustCompile(`(?m)^\w+z_total\{.*} 1$`).FindAllString(text, -1)); got != 1 {
				t.Errorf("%d counters moved, want one", got)
			}
		})
	}
}

func TestReloads(t *testing.T) {
	for _, tt := range []struct {
		name    string
		results []telemetry.Reload
		want    []string
	}{
		{"none yet", nil, []string{"kube_ipvs_config_last_reload_successful 1"}},
		{"refused", []telemetry.Reload{telemetry.Applied, telemetry.Refused},
			[]string{"kube_ipvs_config_last_reload_successful 0", `kube_ipvs_config_reloads_total{result="refused"} 1`}},
		{"mended", []telemetry.Reload{telemetry.Refused, telemetry.RestartNeeded},
			[]string{"kube_ipvs_config_last_reload_successful 1", `kube_ipvs_config_reloads_total{result="restart_needed"} 1`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := telemetry.New()
			for _, r := range tt.results {
				m.Reloaded(r)
			}
			wants(t, get(t, m.Handler()), tt.want...)
		})
	}
}

func TestHashTellsConfigurationsApart(t *testing.T) {
	hash := func(text string) string {
		m := telemetry.New()
		m.Settings([]byte(text), time.Now())
		return regexp.MustCompile(`(?m)^kube_ipvs_config_hash .*$`).FindString(get(t, m.Handler()))
	}
	if a, again := hash("mode: ipvs"), hash("mode: ipvs"); a == "" || a != again {
		t.Errorf("the same text has the hashes %q and %q", a, again)
	}
	if hash("mode: ipvs") == hash("mode: iptables") {
		t.Error("two texts have the same hash")
	}
}

func TestBuildNamesTheReleaseOfKubernetes(t *testing.T) {
	for _, tt := range []struct{ name, release, want string }{
		{"release", "v1.37.2", `git_version="v1.37.2",go_version=".*",major="1",minor="37",`},
		{"pre-release", "v1.38.0-rc.1", `git_version="v1.38.0-rc.1",go_version=".*",major="1",minor="38",`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := telemetry.New()
			m.Build("v0.1.0", tt.release)
			text := get(t, m.Handler())
			if !regexp.MustCompile(`(?m)^kubernetes_build_info\{.*` + tt.want).MatchString(text) {
				t.Errorf("no kubernetes_build_info with %s", tt.want)
			}
			if !strings.Contains(text, `version="v0.1.0"} 1`) {
				t.Error("our own version is not there")
			}
		})
	}
	m := telemetry.New()
	m.Build("v0.1.0", "")
	if text := get(t, m.Handler()); strings.Contains(text, "kubernetes_build_info") {
		t.Error("an unknown release is shown")
	}
}

func TestDeleteResetsSLIs(t *testing.T) {
	m := telemetry.New()
	m.Pinged()
	m.Pinged()
	wants(t, get(t, m.SLIs()), `kubernetes_healthcheck{name="ping",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2`)
	w := httptest.NewRecorder()
	m.SLIs().ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/metrics/slis", nil))
	if got := w.Body.String(); w.Code != http.StatusOK || got != "metrics reset\n" {
		t.Errorf("DELETE: %d %q", w.Code, got)
	}
	if text := get(t, m.SLIs()); strings.Contains(text, "kubernetes_healthcheck") {
		t.Errorf("series are left:\n%s", text)
	}
	m.Pinged()
	wants(t, get(t, m.SLIs()), `kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 1`)
}

// Collectors turn counters into rates by when the process began.
func TestScrapesTellWhenTheProcessBegan(t *testing.T) {
	m := telemetry.New()
	for path, h := range map[string]http.Handler{"/metrics": m.Handler(), "/metrics/slis": m.SLIs()} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Header().Get("Process-Start-Time-Unix") == "" {
			t.Errorf("%s does not tell", path)
		}
	}
}

// The hooks of client-go are those of the process, so every Metrics shows the same.
func TestRequestsOfClientsAreCounted(t *testing.T) {
	shown := func(m *telemetry.Metrics) float64 {
		found := regexp.MustCompile(`(?m)^rest_client_requests_total\{code="200",host="10.96.0.1:443",method="GET"} (\d+)$`).FindStringSubmatch(get(t, m.Handler()))
		if found == nil {
			return 0
		}
		return number(t, found[1])
	}
	one, two := telemetry.New(), telemetry.New()
	one.RESTClient()
	two.RESTClient()
	was := shown(one)
	if err := apiClient(t, "200").Get().AbsPath("/version").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if got := shown(one) - was; got != 1 {
		t.Errorf("counted %v requests, want 1", got)
	}
	if shown(one) != shown(two) {
		t.Errorf("one shows %v, the other %v", shown(one), shown(two))
	}
}

func TestExpiryOfClientCertificates(t *testing.T) {
	m := telemetry.New()
	m.RESTClient()
	ttl := func() string {
		return regexp.MustCompile(`(?m)^rest_client_exec_plugin_ttl_seconds (.*)$`).FindStringSubmatch(get(t, m.Handler()))[1]
	}
	past := time.Now().Add(-time.Hour)
	client.ClientCertExpiry.Set(&past)
	if got := number(t, ttl()); got > -3600 {
		t.Errorf("a certificate that expired an hour ago has %v seconds left", got)
	}
	client.ClientCertExpiry.Set(nil)
	if got := ttl(); got != "+Inf" {
		t.Errorf("without a certificate: %s", got)
	}
}
