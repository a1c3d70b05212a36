// Package alerts holds the dashboard and the alert rules of manifests/monitoring against
// Prometheus' own parser and engine.
package alerts

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"go.yaml.in/yaml/v3"
)

const monitoring = "../../manifests/monitoring/"

type rule struct {
	Alert, Expr         string
	For                 string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	text, err := os.ReadFile(monitoring + "kube-ipvs.rules.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []rule
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// panels are the expressions of the dashboard, with what Grafana puts in.
func panels(t *testing.T) []string {
	t.Helper()
	var file struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile(monitoring + "kube-ipvs.dashboard.json")
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	filled := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$namespace", ".*", "$service", ".*")
	for _, p := range file.Panels {
		for _, target := range p.Targets {
			out = append(out, filled.Replace(target.Expr))
		}
	}
	return out
}

// exported are the labels that each metric of the agent has, from what its own test keeps.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../internal/telemetry/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{"process_resident_memory_bytes": nil, "process_cpu_seconds_total": nil} // of the library
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9_]+)(?:\{(.*)\})? \S+$`).FindAllStringSubmatch(string(text), -1) {
		for _, l := range regexp.MustCompile(`([a-z0-9_]+)=`).FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(out[m[1]], l[1]) {
				out[m[1]] = append(out[m[1]], l[1])
			}
		}
		if _, known := out[m[1]]; !known {
			out[m[1]] = nil
		}
	}
	return out
}

// Every expression is one of Prometheus, and asks metrics that there are for labels they have.
func TestExpressions(t *testing.T) {
	all := panels(t)
	for _, r := range rules(t) {
		all = append(all, r.Expr)
	}
	if len(all) < 45 {
		t.Fatalf("%d expressions, want 45 at least", len(all))
	}
	metrics := exported(t)
	p := parser.NewParser(parser.Options{})
	for _, text := range all {
		expr, err := p.ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			switch n := n.(type) {
			case *parser.VectorSelector:
				has, known := metrics[n.Name]
				if !known {
					t.Errorf("%s: no metric %s", text, n.Name)
				}
				for _, m := range n.LabelMatchers {
					if !slices.Contains(append(has, "job", "instance", labels.MetricName), m.Name) {
						t.Errorf("%s: %s has no label %s", text, n.Name, m.Name)
					}
				}
			case *parser.AggregateExpr:
				for _, of := range parser.ExtractSelectors(n.Expr) {
					name := of[slices.IndexFunc(of, func(m *labels.Matcher) bool { return m.Name == labels.MetricName })].Value
					for _, l := range n.Grouping {
						if !slices.Contains(append(metrics[name], "job", "instance"), l) {
							t.Errorf("%s: %s has no label %s to sum by", text, name, l)
						}
					}
				}
			}
			return nil
		})
	}
}

// Texts of alerts name labels that the alert has.
func TestAnnotationsNameLabelsOfTheAlert(t *testing.T) {
	named := regexp.MustCompile(`\$labels\.([a-z_]+)`)
	for _, c := range cases {
		r := find(t, c.alert)
		fired := firing(t, r, c.fires)
		if len(fired) == 0 {
			continue // the other test reports it
		}
		for _, text := range r.Annotations {
			for _, m := range named.FindAllStringSubmatch(text, -1) {
				if fired[0].Get(m[1]) == "" {
					t.Errorf("%s names label %s, and it has %s", c.alert, m[1], fired[0])
				}
			}
		}
	}
}

const node = `job="kube-ipvs", instance="worker-1"`

// cases are series, a sample a minute for 40 minutes and more, with which each alert fires and with
// which it does not.
var cases = []struct {
	alert        string
	fires, quiet string
}{
	{"KubeIPVSAbsent", `up{} 1x60`, `kube_ipvs_build_info{` + node + `} 1x60`},
	{"KubeIPVSLoopStuck", `kube_ipvs_loop_busy_seconds{` + node + `} 0x40 60+60x20`, `kube_ipvs_loop_busy_seconds{` + node + `} 0x40 61 0x20`},
	{"KubeIPVSBehind", `kube_ipvs_loop_behind_seconds{` + node + `} 0+60x60`, `kube_ipvs_loop_behind_seconds{` + node + `} 119x60`},
	{"KubeIPVSApplyFails", `kube_ipvs_loop_failures{` + node + `} 0+1x60`, `kube_ipvs_loop_failures{` + node + `} 0 5 0 5 0 5 0x60`},
	{"KubeIPVSRowsFail", `kube_ipvs_rows_failed_total{` + node + `, table="servers"} 0+1x60`, `kube_ipvs_rows_failed_total{` + node + `, table="servers"} 0x10 5x60`},
	{"KubeIPVSDrift", `kube_ipvs_rows_drifted_total{` + node + `, table="chains"} 0+1x60`, `kube_ipvs_rows_drifted_total{` + node + `, table="chains"} 0x20 4x60`},
	{"KubeIPVSSlowProgramming", programming("0+1x60", "0x60"), programming("0+1x60", "0+1x60")},
	{"KubeIPVSKernelTimeouts", `kube_ipvs_kernel_call_timeouts_total{` + node + `, room="link"} 0x30 1x30`, `kube_ipvs_kernel_call_timeouts_total{` + node + `, room="link"} 3x60`},
	{"KubeIPVSBlind", `kube_ipvs_audit_failures_total{` + node + `} 0+1x60`, `kube_ipvs_audit_failures_total{` + node + `} 0x5 3x60`},
	{"KubeIPVSWatchOld", `kube_ipvs_watch_age_seconds{` + node + `, kind="Service"} 0+60x60`, `kube_ipvs_watch_age_seconds{` + node + `, kind="Service"} 0+60x6 0+60x6 0x60`},
	{"KubeIPVSWatchFailing", `kube_ipvs_watch_failing{` + node + `, kind="Node", reason="Forbidden"} 1x60`, `kube_ipvs_watch_failing{` + node + `, kind="Node", reason="Timeout"} 1x3 stale`},
	{"KubeIPVSConfigRefused", `kube_ipvs_config_last_reload_successful{` + node + `} 1 0x60`, `kube_ipvs_config_last_reload_successful{` + node + `} 0x3 1x60`},
	{"KubeIPVSFallback", `kube_ipvs_proxy_mode{` + node + `, requested="ipvs", active="iptables"} 1x60`, `kube_ipvs_proxy_mode{` + node + `, requested="iptables", active="iptables"} 1x60`},
	{"KubeIPVSAddressConflict", `kube_ipvs_address_conflicts{` + node + `} 2x60`, `kube_ipvs_address_conflicts{` + node + `} 0x60`},
	{"KubeIPVSSetNearlyFull", `kube_ipvs_set_fill_ratio{` + node + `, set="KUBE-CLUSTER-IP"} 0.95x60`, `kube_ipvs_set_fill_ratio{` + node + `, set="KUBE-CLUSTER-IP"} 0.95x10 0.5x60`},
	{"KubeIPVSMetricsUnread", `kube_ipvs_service_reads_failed_total{` + node + `, of="traffic"} 0+1x60`, `kube_ipvs_service_reads_failed_total{` + node + `, of="traffic"} 0x30 1x30`},
}

// programming is a histogram in which all is under a minute, and under a second as told.
func programming(minute, second string) string {
	const bucket = `kubeproxy_network_programming_duration_seconds_bucket{` + node + `, ip_family="IPv4", le=`
	return bucket + `"1"} ` + second + "\n  " + bucket + `"60"} ` + minute + "\n  " + bucket + `"+Inf"} ` + minute
}

func find(t *testing.T, alert string) rule {
	t.Helper()
	all := rules(t)
	i := slices.IndexFunc(all, func(r rule) bool { return r.Alert == alert })
	if i < 0 {
		t.Fatalf("no alert %s", alert)
	}
	return all[i]
}

func TestAlerts(t *testing.T) {
	for _, r := range rules(t) {
		if !slices.ContainsFunc(cases, func(c struct{ alert, fires, quiet string }) bool { return c.alert == r.Alert }) {
			t.Errorf("alert %s has no case", r.Alert)
		}
	}
	for _, c := range cases {
		t.Run(c.alert, func(t *testing.T) {
			r := find(t, c.alert)
			if len(firing(t, r, c.fires)) == 0 {
				t.Errorf("does not fire with\n  %s", c.fires)
			}
			if fired := firing(t, r, c.quiet); len(fired) > 0 {
				t.Errorf("%s fires with\n  %s", fired[0], c.quiet)
			}
		})
	}
}

// firing are the series for which a rule fires at some minute of an hour: its expression has
// had them at each minute for its whole time.
func firing(t *testing.T, r rule, series string) []labels.Labels {
	t.Helper()
	store := promqltest.LoadedStorage(t, "load 1m\n  "+series+"\n")
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	start := time.Unix(0, 0)
	query, err := engine.NewRangeQuery(t.Context(), store, nil, r.Expr, start, start.Add(time.Hour), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	matrix, err := query.Exec(t.Context()).Matrix()
	if err != nil {
		t.Fatal(err)
	}
	wait := model.Duration(0)
	if r.For != "" {
		if wait, err = model.ParseDuration(r.For); err != nil {
			t.Fatal(err)
		}
	}
	var out []labels.Labels
	for _, s := range matrix {
		if lasts(s.Floats, time.Duration(wait)) {
			out = append(out, s.Metric)
		}
	}
	return out
}

// lasts reports whether points come minute by minute for so long.
func lasts(points []promql.FPoint, wait time.Duration) bool {
	since := 0
	for i, p := range points {
		if i > 0 && p.T-points[i-1].T > time.Minute.Milliseconds() {
			since = i
		}
		if p.T-points[since].T >= wait.Milliseconds() {
			return true
		}
	}
	return false
}
