package telemetry_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

func TestOnlyTheLastModeIsShown(t *testing.T) {
	m := telemetry.New()
	m.Mode("ipvs", "none")
	m.Mode("ipvs", "ipvs")
	text := get(t, m.Handler())
	wants(t, text, `kube_ipvs_proxy_mode{active="ipvs",requested="ipvs"} 1`)
	if strings.Contains(text, `active="none"`) {
		t.Error("the mode before is still shown")
	}
}

func TestOnlyServedFamiliesHaveSeries(t *testing.T) {
	for _, tt := range []struct {
		name   string
		served []model.Family
		want   []string
	}{
		{"IPv4", []model.Family{model.IPv4}, []string{"IPv4"}},
		{"IPv6", []model.Family{model.IPv6}, []string{"IPv6"}},
		{"dual stack", []model.Family{model.IPv4, model.IPv6}, []string{"IPv4", "IPv6"}},
		{"not set", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := telemetry.New()
			if tt.served != nil {
				m.Families(tt.served)
			}
			ask(m, time.Now())
			happen(m, time.Now())
			var got []string
			for _, found := range regexp.MustCompile(`ip_family="(.*?)"`).FindAllStringSubmatch(get(t, m.Handler()), -1) {
				got = append(got, found[1])
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, slices.Compact(got)); diff != "" {
				t.Errorf("families (-want +got):\n%s", diff)
			}
		})
	}
}

// rate() needs the zero before the first event; a time of zero would be an age of
// decades.
func TestCountersStartAtZeroAndTimesAbsent(t *testing.T) {
	m := telemetry.New()
	m.Families([]model.Family{model.IPv4})
	m.RestoreFailures(func(model.Family) uint64 { return 0 })
	text := get(t, m.Handler())
	wants(t, text,
		`kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"} 0`,
		`kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 0`,
		`kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} 0`,
		`kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family="IPv4"} 0`,
		`kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 0`, `kube_ipvs_conntrack_sweeps_failed_total 0`,
		`kubeproxy_proxy_healthz_total{code="200"} 0`, `kubeproxy_proxy_healthz_total{code="503"} 0`,
		`kubeproxy_proxy_livez_total{code="200"} 0`, `kubeproxy_proxy_livez_total{code="503"} 0`,
		`kube_ipvs_config_reloads_total{result="refused"} 0`)
	for _, absent := range []string{"kubeproxy_sync_proxy_rules_last_timestamp_seconds", "kube_ipvs_config_last_reload_timestamp_seconds", "kube_ipvs_config_hash"} {
		if strings.Contains(text, absent) {
			t.Errorf("%s is there before there is a value", absent)
		}
	}
}

// A metric without values is absent: a zero would mean that all is well.
func TestWhatNobodyFeedsIsAbsent(t *testing.T) {
	families := parse(t, get(t, telemetry.New().Handler()))
	for _, name := range []string{
		"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "kubeproxy_sync_proxy_rules_service_changes_total",
		"kubeproxy_sync_proxy_rules_iptables_restore_failures_total", "kube_ipvs_loop_busy_seconds", "kube_ipvs_watch_age_seconds",
		"kube_ipvs_source_synced", "kube_ipvs_source_unreadable", "kube_ipvs_events_dropped_total", "kubernetes_build_info", "rest_client_requests_total",
		"kube_ipvs_ipvs_timeout_seconds", "kube_ipvs_connection_pickup",
	} {
		if families[name] != nil {
			t.Errorf("%s is there", name)
		}
	}
}

// The loop tells and others ask, all at once.
func TestScrapesWhileTheLoopTells(t *testing.T) {
	m, start := telemetry.New(), time.Now()
	ask(m, start)
	var group sync.WaitGroup
	group.Go(func() {
		m.Families([]model.Family{model.IPv4})
		for range 50 {
			happen(m, start)
		}
	})
	group.Go(func() {
		for range 5 {
			get(t, m.Handler())
			get(t, m.SLIs())
		}
	})
	group.Wait()
	wants(t, get(t, m.Handler()), `kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 100`)
}

func TestRowsAddUp(t *testing.T) {
	m := telemetry.New()
	for range 2 {
		m.Cycle(agent.Cycle{Rows: []agent.TableRows{{Table: "servers", Adds: 3}, {Table: "sets", Deletes: 1, Failed: 4}}})
		m.Drift(dataplane.Drift{"addresses": 5})
		m.Tables([]dataplane.TableStatus{{Table: "servers", Desired: 9}})
	}
	wants(t, get(t, m.Handler()),
		`kube_ipvs_rows_written_total{op="add",table="servers"} 6`,
		`kube_ipvs_rows_written_total{op="delete",table="sets"} 2`,
		`kube_ipvs_rows_failed_total{table="sets"} 8`,
		`kube_ipvs_rows_drifted_total{table="addresses"} 10`,
		`kube_ipvs_rows_desired{table="servers"} 9`)
}

// Other programs are named, up to a limit.
func TestTakenRowsNameThePrograms(t *testing.T) {
	m := telemetry.New()
	m.Taken([]string{"firewalld", "nft"}, 3)
	for i := range 30 {
		m.Taken([]string{fmt.Sprint("p", i)}, 1)
	}
	wants(t, get(t, m.Handler()),
		`kube_ipvs_rows_taken_total{program="firewalld,nft"} 3`, `kube_ipvs_rows_taken_total{program="p18"} 1`,
		`kube_ipvs_rows_taken_total{program="(others)"} 11`)
}

// Drifted rows count as repaired once, when a pass leaves no row pending.
func TestMendedRows(t *testing.T) {
	m := telemetry.New()
	m.Drift(dataplane.Drift{"addresses": 5})
	m.Pass(agent.Pass{})
	m.Tables([]dataplane.TableStatus{{Table: "addresses"}})
	wants(t, get(t, m.Handler()), `kube_ipvs_rows_drifted_total{table="addresses"} 5`, `kube_ipvs_rows_mended_total{table="addresses"} 0`)
	for range 2 {
		m.Pass(agent.Pass{OK: true})
	}
	wants(t, get(t, m.Handler()), `kube_ipvs_rows_drifted_total{table="addresses"} 5`, `kube_ipvs_rows_mended_total{table="addresses"} 5`)
}

func TestServiceChangesCountOnceForEachFamily(t *testing.T) {
	for _, tt := range []struct {
		name   string
		served []model.Family
		want   string
	}{
		{"single stack", []model.Family{model.IPv6}, "7"},
		{"dual stack", []model.Family{model.IPv4, model.IPv6}, "14"},
		{"not set", nil, "7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := telemetry.New()
			m.Families(tt.served)
			m.Inputs(func() catalog.Changes {
				return catalog.Changes{Services: 7, PendingServices: 2, Slices: 9, PendingSlices: 3}
			})
			wants(t, get(t, m.Handler()),
				"kubeproxy_sync_proxy_rules_service_changes_total "+tt.want,
				"kubeproxy_sync_proxy_rules_service_changes_pending 2",
				"kubeproxy_sync_proxy_rules_endpoint_changes_total 9",
				"kubeproxy_sync_proxy_rules_endpoint_changes_pending 3")
		})
	}
}
