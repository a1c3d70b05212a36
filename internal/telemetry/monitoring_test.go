package telemetry_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// expressions are those of the dashboard and of the alert rules, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	var dashboard struct {
		UID    string
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	read(t, "kube-ipvs.dashboard.json", &dashboard, json.Unmarshal)
	for _, p := range dashboard.Panels {
		if p.Type != "row" && (p.Title == "" || len(p.Targets) == 0) {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			out["panel "+p.Title+": "+target.Expr] = target.Expr
		}
	}
	for _, v := range dashboard.Templating.List {
		out["variable "+v.Name] = v.Definition
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	read(t, "kube-ipvs.rules.yaml", &rules, func(text []byte, to any) error { return yaml.UnmarshalStrict(text, to) })
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if _, twice := out["alert "+r.Alert]; twice || r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %q stands twice, or lacks its severity or texts", r.Alert)
			}
			out["alert "+r.Alert] = r.Expr
		}
	}
	return out
}

func read(t *testing.T, name string, to any, parse func([]byte, any) error) {
	t.Helper()
	text, err := os.ReadFile("../../manifests/monitoring/" + name)
	if err == nil {
		err = parse(text, to)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

var (
	quoted     = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	metricName = regexp.MustCompile(`\b(kube_ipvs|kubeproxy|rest_client|kubernetes|process|go)_[a-z0-9_]+`)
)

// Dashboard and alerts use only existing metrics, so a renamed metric cannot silently break an
// alert. Whether expressions make sense to Prometheus is tested in e2e/alerts, with its own engine.
func TestMonitoringAsksForWhatThereIs(t *testing.T) {
	metrics, slis := fed(t)
	families := parse(t, metrics)
	for name, f := range parse(t, slis) {
		families[name] = f
	}
	seen := 0
	for where, expr := range expressions(t) {
		names := metricName.FindAllString(quoted.ReplaceAllString(expr, ""), -1)
		if len(names) == 0 && where != "variable datasource" {
			t.Errorf("%s asks for no metric: %s", where, expr)
		}
		for _, name := range names {
			seen++
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if f := families[strings.TrimSuffix(name, suffix)]; f != nil && f.typ == "histogram" {
					base = strings.TrimSuffix(name, suffix)
				}
			}
			if families[base] == nil {
				t.Errorf("%s asks for %s, which does not exist", where, name)
			}
		}
	}
	if seen < 50 {
		t.Errorf("%d metrics asked for, want 50 at least", seen)
	}
}
