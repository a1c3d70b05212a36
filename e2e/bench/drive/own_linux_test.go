package drive

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
)

func TestPeriodIn(t *testing.T) {
	period, err := periodIn([]byte(`{"kubeproxy.config.k8s.io":{"mode":"ipvs","ipvs":{"syncPeriod":"30s"},"iptables":{"syncPeriod":"1m"}}}`))
	if err != nil || period != 30*time.Second {
		t.Errorf("period is %s, %v", period, err)
	}
	if _, err := periodIn([]byte(`{}`)); !errors.Is(err, errNotTold) {
		t.Errorf("no period is %v", err)
	}
}

func TestAuditPeriod(t *testing.T) {
	const told = "# HELP kube_ipvs_audit_rest_seconds From one round\nkube_ipvs_audit_rest_seconds 90\nkube_ipvs_audit_round_seconds 0.5\n"
	if got := auditPeriod(told); got != 90*time.Second+500*time.Millisecond {
		t.Errorf("period %s", got)
	}
	for _, none := range []string{"", "kube_ipvs_audit_rest_seconds 0\nkube_ipvs_audit_round_seconds 0\n", "other 1\n"} {
		if got := auditPeriod(none); got != 0 {
			t.Errorf("period %s in %q", got, none)
		}
	}
}

func TestWritingIn(t *testing.T) {
	const told = "kube_ipvs_write_seconds_total{table=\"members\"} 0.5\nkube_ipvs_write_seconds_total{table=\"sets\"} 0.25\nkube_ipvs_write_seconds_total{table=\"destinations\"} 2\nkube_ipvs_write_seconds_total{table=\"chains\"} 0\n"
	if got, want := writingIn(told), map[string]cell.Seconds{"sets": 0.75, "ipvs": 2}; !maps.Equal(got, want) {
		t.Errorf("writing %v, want %v", got, want)
	}
	if got := writingIn("other 1\n"); got != nil {
		t.Errorf("writing %v", got)
	}
}
