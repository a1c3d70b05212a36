package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

func TestMetricsShowWhatWasReported(t *testing.T) {
	m := telemetry.New()
	m.Mode("ipvs", "ipvs")
	m.Cycle(agent.Cycle{Took: time.Millisecond, Rows: []agent.TableRows{{Table: "servers", Adds: 3, Updates: 2, Deletes: 1, Failed: 4}}})
	m.Drift(dataplane.Drift{"addresses": 5})
	m.Tables([]dataplane.TableStatus{{Table: "servers", Desired: 9, Updates: 7, Deletes: 6}})
	m.Counts(agent.Counts{Services: 10, Skipped: 11, Noted: 12, Unbound: 13, Conflicts: 14})
	m.HealthPorts(func() (open, failed int) { return 15, 16 })

	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`kube_ipvs_proxy_mode{active="ipvs",requested="ipvs"} 1`,
		`kube_ipvs_rows_written_total{op="add",table="servers"} 3`,
		`kube_ipvs_rows_written_total{op="update",table="servers"} 2`,
		`kube_ipvs_rows_written_total{op="delete",table="servers"} 1`,
		`kube_ipvs_rows_failed_total{table="servers"} 4`,
		`kube_ipvs_rows_drifted_total{table="addresses"} 5`,
		`kube_ipvs_rows_desired{table="servers"} 9`,
		`kube_ipvs_rows_pending{op="update",table="servers"} 7`,
		`kube_ipvs_rows_pending{op="delete",table="servers"} 6`,
		`kube_ipvs_services{state="served"} 10`,
		`kube_ipvs_health_check_sockets{state="open"} 15`,
		`kube_ipvs_health_check_sockets{state="failed"} 16`,
		`kube_ipvs_services{state="skipped"} 11`,
		`kube_ipvs_services{state="noted"} 12`,
		`kube_ipvs_unbound_addresses 13`,
		`kube_ipvs_address_conflicts 14`,
		`kube_ipvs_apply_duration_seconds_count 1`,
		`process_cpu_seconds_total`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestOnlyTheLastModeIsShown(t *testing.T) {
	m := telemetry.New()
	m.Mode("ipvs", "none")
	m.Mode("ipvs", "ipvs")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if strings.Contains(w.Body.String(), `active="none"`) {
		t.Error("the mode before is still shown")
	}
}
