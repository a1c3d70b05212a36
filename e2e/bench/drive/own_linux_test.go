package drive

import (
	"errors"
	"testing"
	"time"
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
