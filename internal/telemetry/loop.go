package telemetry

import (
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// Loop shows how the loop fares, when it is stuck, too.
func (m *Metrics) Loop(read func() agent.Condition) {
	m.pullGauge(ours+"loop_busy_seconds", "How long the loop is at what it does now; 0 when it waits.",
		func(e emit) { e(since(read().Busy)) })
	m.pullGauge(ours+"loop_behind_seconds", "How long something has waited to get into the kernel; 0 when nothing does.",
		func(e emit) { e(since(read().PendingSince)) })
	m.pullGauge(ours+"loop_failures", "How often in a row applying has failed.",
		func(e emit) { e(float64(read().Failures)) })
	m.pullCounter(ours+"audit_failures_total", "Pieces of audits that could not be read: the host, a table. Failed attempts to remove what another mode left, too.",
		func(e emit) { e(float64(read().AuditFailures)) })
	m.pullGauge(ours+"audit_round_seconds", "What the latest audit cost, in seconds of a processor at most.",
		func(e emit) { e(read().AuditTook.Seconds()) })
	m.pullGauge(ours+"audit_rest_seconds", "From the beginning of one audit to the next: the sync period. 0 is no audits.",
		func(e emit) { e(read().AuditPeriod.Seconds()) })
	m.pullGauge(ours+"last_audit_timestamp_seconds", "When the latest complete audit ended, in seconds since 1970; 0 before the first.",
		func(e emit) { e(unix(read().AuditEnded)) })
}

// unix is a time in seconds since 1970; 0 for the zero time.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// since is the time since t; 0 without one, and where the clock was set back.
func since(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(0, time.Since(t)).Seconds()
}

// Checks shows which of the checks hold that /healthz, /livez and /readyz answer by.
func (m *Metrics) Checks(read func() map[string]bool) {
	m.pullGauge(ours+"health_check_ok", "1 while a check of the agent's own health holds, 0 while it does not. kube-ipvs show health says why.",
		func(e emit) {
			for name, ok := range read() {
				value := 0.0
				if ok {
					value = 1
				}
				e(value, name)
			}
		}, "check")
}

// ExternalIPs shows whether a setting limits external IPs.
func (m *Metrics) ExternalIPs(limited func() bool) {
	m.pullGauge(ours+"external_ips_limited", "1 where --external-ip-allowed-cidrs or a feature gate limits external IPs, 0 where any Service may claim any address.",
		func(e emit) {
			if limited() {
				e(1)
			} else {
				e(0)
			}
		})
}

// Firewalls shows how many Services filters of other programs drop packets of, by table and
// base chain. There are no series where there is no such chain, and a few at most.
func (m *Metrics) Firewalls(read func() map[[2]string]int) {
	m.pullGauge(ours+"firewall_blocks", "Services of which a filter of another program drops packets. kube-ipvs check names the rule and the remedy.", func(e emit) {
		for at, n := range read() {
			e(float64(n), at[0], at[1])
		}
	}, "table", "chain")
}

// LogLines shows how many lines are missing in the log, by reason.
func (m *Metrics) LogLines(dropped func() map[string]uint64) {
	m.pullCounter(ours+"log_lines_dropped_total", "Lines that are missing in the log: stalled, nothing read standard error in time; repeated, many others had the same message.",
		func(e emit) {
			for reason, n := range dropped() {
				e(float64(n), reason)
			}
		}, "reason")
}

// HealthPorts shows the sockets for health checks.
func (m *Metrics) HealthPorts(count func() (open, failed int)) {
	m.pullGauge(ours+"health_check_sockets", "Sockets for the health checks of load balancers, by state.",
		func(e emit) {
			open, failed := count()
			e(float64(open), "open")
			e(float64(failed), "failed")
		}, "state")
}

// Events shows how many Events could not be sent.
func (m *Metrics) Events(dropped func() uint64) {
	m.pullCounter(ours+"events_dropped_total", "Events that could not be sent and were dropped.",
		func(e emit) { e(float64(dropped())) })
}
