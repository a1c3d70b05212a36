package telemetry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// The clock of a bubble begins at 946684800.
const (
	queued    = `kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"} 9.466848`
	succeeded = `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 9.466848`
)

// kube-proxy's words for it: if queued is much larger than the last success, then
// something is hung.
func TestStuckLoopIsQueuedAfterItsLastSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, start := telemetry.New(), time.Now()
		var changes catalog.Changes
		m.Families([]model.Family{model.IPv4})
		m.Inputs(func() catalog.Changes { return changes })
		wants(t, get(t, m.Handler()), queued+"e+08") // the start, until there is a change

		changes.Last = start.Add(time.Second)
		m.Pass(agent.Pass{At: start.Add(2 * time.Second), Took: time.Second, OK: true})
		wants(t, get(t, m.Handler()), queued+"01e+08", succeeded+"03e+08")

		changes.Last = start.Add(50 * time.Second) // and the loop takes nothing up
		wants(t, get(t, m.Handler()), queued+"5e+08", succeeded+"03e+08")
	})
}

func TestFailedPassIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, start := telemetry.New(), time.Now()
		m.Families([]model.Family{model.IPv4})
		m.Pass(agent.Pass{At: start, Took: time.Second, OK: true})
		m.Pass(agent.Pass{At: start.Add(time.Minute), Took: 2 * time.Second})
		wants(t, get(t, m.Handler()), succeeded+"01e+08",
			`kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 2`,
			`kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family="IPv4"} 3`)
	})
}

// A trigger is stamped by another machine, whose clock may be ahead of ours.
func TestProgrammingTimeIsNeverNegative(t *testing.T) {
	m, start := telemetry.New(), time.Now()
	m.Families([]model.Family{model.IPv4})
	m.Pass(agent.Pass{At: start, Took: time.Second, OK: true, Triggers: []catalog.Trigger{
		{Family: model.IPv4, At: start.Add(-time.Second)}, {Family: model.IPv4, At: start.Add(time.Hour)},
	}})
	wants(t, get(t, m.Handler()),
		`kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="0.25"} 1`,
		`kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} 2`,
		`kubeproxy_network_programming_duration_seconds_sum{ip_family="IPv4"} 2`)
}

func TestLoopShowsHowItFares(t *testing.T) {
	for _, tt := range []struct {
		name         string
		busy, owing  time.Duration // before the scrape; 0 is not at all
		busyS, owesS string
	}{
		{"waits", 0, 0, "0", "0"},
		{"works", 2 * time.Second, 3 * time.Second, "2", "3"},
		{"is behind and waits for its backoff", 0, time.Minute, "0", "60"},
		{"the clock was set back", -time.Minute, -time.Hour, "0", "0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := telemetry.New()
				m.Loop(func() agent.Condition {
					return agent.Condition{Busy: before(tt.busy), PendingSince: before(tt.owing), Failures: 4}
				})
				wants(t, get(t, m.Handler()), "kube_ipvs_loop_busy_seconds "+tt.busyS, "kube_ipvs_loop_behind_seconds "+tt.owesS,
					"kube_ipvs_loop_failures 4")
			})
		})
	}
}

func before(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(-d)
}

// A kind the server never spoke about is as old as the process.
func TestWatchAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.New()
		watches := map[string]telemetry.Watch{"Node": {}, "Service": {Failing: "Timeout"}}
		m.Watches(func() map[string]telemetry.Watch { return watches })
		time.Sleep(5 * time.Second) // on the clock of the bubble
		wants(t, get(t, m.Handler()), `kube_ipvs_watch_age_seconds{kind="Node"} 5`, `kube_ipvs_watch_failing{kind="Service",reason="Timeout"} 1`)

		watches = map[string]telemetry.Watch{"Node": {Heard: time.Now()}, "Service": {Heard: time.Now()}}
		text := get(t, m.Handler())
		wants(t, text, `kube_ipvs_watch_age_seconds{kind="Node"} 0`)
		if parse(t, text)["kube_ipvs_watch_failing"] != nil {
			t.Error("a watch that is well again still fails")
		}
	})
}

// A timeout that could not be read is absent, not zero.
func TestIdleTimesAreAbsentUntilTheyAreKnown(t *testing.T) {
	m := telemetry.New()
	var now telemetry.IdleTimes
	m.IdleTimes(func() (telemetry.IdleTimes, bool) { return now, now.TCP > 0 })
	if parse(t, get(t, m.Handler()))["kube_ipvs_ipvs_timeout_seconds"] != nil {
		t.Error("an unread time is shown")
	}
	now = telemetry.IdleTimes{TCP: 15 * time.Minute, TCPFin: 2 * time.Minute, UDP: 5 * time.Minute}
	wants(t, get(t, m.Handler()), `kube_ipvs_ipvs_timeout_seconds{protocol="tcp"} 900`,
		`kube_ipvs_ipvs_timeout_seconds{protocol="tcpfin"} 120`, `kube_ipvs_ipvs_timeout_seconds{protocol="udp"} 300`)
}
