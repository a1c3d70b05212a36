package telemetry

import (
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// Loop shows how the loop fares, when it is stuck, too.
func (m *Metrics) Loop(read func() agent.Condition) {
	m.pullGauge(ours+"loop_busy_seconds", "Duration of the loop's current action; 0 while the loop waits.",
		func(e emit) { e(since(read().Busy)) })
	m.pullGauge(ours+"loop_behind_seconds", "Age of the oldest change that is not in the kernel yet; 0 if there is none.",
		func(e emit) { e(since(read().PendingSince)) })
	m.pullGauge(ours+"loop_failures", "Failed attempts in a row to write all pending rows.",
		func(e emit) { e(float64(read().Failures)) })
	m.pullCounter(ours+"audit_failures_total", "Parts of audits that could not be read: the addresses of the host, or a table. Failed attempts to remove rows of another mode count, too.",
		func(e emit) { e(float64(read().AuditFailures)) })
	m.pullGauge(ours+"audit_round_seconds", "CPU time of the latest audit in seconds, an upper bound.",
		func(e emit) { e(read().AuditTook.Seconds()) })
	m.pullGauge(ours+"audit_rest_seconds", "Time from the start of one audit to the next, the sync period; 0 means no audits.",
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
	m.pullGauge(ours+"health_check_ok", "1 while a health check of the agent passes, 0 while it fails. kube-ipvs show health prints the reason.",
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
	m.pullCounter(ours+"log_lines_dropped_total", "Dropped log lines, by reason. stalled: standard error was not read in time; repeated: many lines had the same message.",
		func(e emit) {
			for reason, n := range dropped() {
				e(float64(n), reason)
			}
		}, "reason")
}

// HealthPorts shows the sockets for health checks.
func (m *Metrics) HealthPorts(count func() (open, failed int)) {
	m.pullGauge(ours+"health_check_sockets", "Listeners on health-check node ports, by state.",
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
