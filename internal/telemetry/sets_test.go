package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

func TestSetsAreReadOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reads := telemetry.New(), 0
		var err error
		m.Sets(func(context.Context) ([]telemetry.SetFill, error) {
			reads++
			return []telemetry.SetFill{{Name: "KUBE-CLUSTER-IP", Entries: 16384, Most: 65536}}, err
		})
		for range 2 {
			wants(t, get(t, m.Handler()), `kube_ipvs_set_entries{set="KUBE-CLUSTER-IP"} 16384`, `kube_ipvs_set_fill_ratio{set="KUBE-CLUSTER-IP"} 0.25`)
		}
		if reads != 1 {
			t.Errorf("%d readings, want 1", reads)
		}
		time.Sleep(time.Minute) // on the clock of the bubble
		err = errors.New("no reply")
		if text := get(t, m.Handler()); strings.Contains(text, "kube_ipvs_set_fill_ratio") || reads != 2 {
			t.Errorf("after a reading that failed something is shown, or nothing was read: %d readings", reads)
		}
	})
}
