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

func TestDropsAreReadOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reads := telemetry.New(), 0
		var err error
		m.Drops(func(context.Context) ([]telemetry.Dropped, error) {
			reads++
			return []telemetry.Dropped{{Reason: "source_ranges", Family: "IPv6", Packets: uint64(7 * reads)}, {Reason: "no_service", Family: "IPv4"}}, err
		})
		for range 2 {
			wants(t, get(t, m.Handler()), `kube_ipvs_dropped_packets_total{family="IPv6",reason="source_ranges"} 7`,
				`kube_ipvs_dropped_packets_total{family="IPv4",reason="no_service"} 0`)
		}
		time.Sleep(time.Minute) // on the clock of the bubble
		wants(t, get(t, m.Handler()), `kube_ipvs_dropped_packets_total{family="IPv6",reason="source_ranges"} 14`)
		time.Sleep(time.Minute)
		err = errors.New("no reply")
		if text := get(t, m.Handler()); strings.Contains(text, "dropped_packets") || reads != 3 {
			t.Errorf("after a reading that failed something is shown, or nothing was read: %d readings", reads)
		}
	})
}
