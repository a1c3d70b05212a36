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
