package telemetry_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// A sweep that failed took its time, too, and what it deleted is gone.
func TestSweepsAddUp(t *testing.T) {
	m := telemetry.New()
	m.Families([]model.Family{model.IPv4, model.IPv6})
	m.Swept(model.IPv4, time.Second, 5, nil)
	m.Swept(model.IPv4, 2*time.Second, 3, errors.New("interrupted"))
	m.Swept(model.IPv6, 0, 0, errors.New("no answer"))
	wants(t, get(t, m.Handler()),
		`kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 8`,
		`kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv6"} 0`,
		`kubeproxy_conntrack_reconciler_sync_duration_seconds_sum{ip_family="IPv4"} 3`,
		`kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family="IPv4"} 2`,
		`kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family="IPv6"} 1`,
		"kube_ipvs_conntrack_sweeps_failed_total 2")
}
