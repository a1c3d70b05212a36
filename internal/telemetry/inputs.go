package telemetry

import (
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Inputs shows the changes from the sources: their number, how many of them wait, and the time of
// the latest, which replaces the time at which kube-proxy queues a pass. It is asked of the catalog
// and not of the loop, so a loop that hangs shows as a pass that was queued long after the last one
// that succeeded. Changes of Services count once for each family that is served, twice on dual
// stack, as those of kube-proxy do.
func (m *Metrics) Inputs(read func() catalog.Changes) {
	m.pullGauge(theirs+"sync_proxy_rules_last_queued_timestamp_seconds", "Time of the latest change that has to be written to the kernel, in seconds since 1970.",
		func(e emit) {
			// Before the first one it is the start, as with kube-proxy.
			queued := later(m.began, read().Last)
			for _, f := range families(m) {
				e(seconds(queued), f.String())
			}
		}, "ip_family")
	m.pullGauge(theirs+"sync_proxy_rules_service_changes_pending", "Changes of Services that wait for the next pass.",
		func(e emit) { e(float64(read().PendingServices)) })
	m.pullCounter(theirs+"sync_proxy_rules_service_changes_total", "Changes of Services, once for each family.",
		func(e emit) { e(float64(read().Services) * float64(max(1, len(families(m))))) })
	m.pullGauge(theirs+"sync_proxy_rules_endpoint_changes_pending", "Changes of EndpointSlices that wait for the next pass.",
		func(e emit) { e(float64(read().PendingSlices)) })
	m.pullCounter(theirs+"sync_proxy_rules_endpoint_changes_total", "Changes of EndpointSlices.",
		func(e emit) { e(float64(read().Slices)) })
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// RestoreFailures shows how often iptables-restore failed for a family since the
// process began.
func (m *Metrics) RestoreFailures(count func(model.Family) uint64) {
	m.pullCounter(theirs+"sync_proxy_rules_iptables_restore_failures_total", "Runs of iptables-restore that failed.",
		func(e emit) {
			for _, f := range families(m) {
				e(float64(count(f)), f.String())
			}
		}, "ip_family")
}

// Watch is how one kind of object is followed.
type Watch struct {
	// Heard is when the API server last said something about the kind; the zero time
	// before the first word.
	Heard time.Time
	// Failing is in one word why calls fail, empty when they do not.
	Failing string
}

// Watches shows how the kinds of objects are followed, by the name of the kind.
func (m *Metrics) Watches(read func() map[string]Watch) {
	m.pullGauge(ours+"watch_age_seconds", "Time since the API server last sent an event or a bookmark about a kind of object.",
		func(e emit) {
			for kind, w := range read() {
				e(time.Since(later(m.began, w.Heard)).Seconds(), kind)
			}
		}, "kind")
	m.pullGauge(ours+"watch_failing", "1 while calls to the API server for a kind of object fail, by reason.",
		func(e emit) {
			for kind, w := range read() {
				if w.Failing != "" {
					e(1, kind, w.Failing)
				}
			}
		}, "kind", "reason")
}

// Sources shows which sources have delivered what they can.
func (m *Metrics) Sources(synced func() map[string]bool) {
	m.pullGauge(ours+"source_synced", "1 for a source that is in sync, else 0.",
		func(e emit) {
			for source, ok := range synced() {
				e(truth(ok), source)
			}
		}, "source")
}

// Unreadable shows how many manifests cannot be read.
func (m *Metrics) Unreadable(count func() int) {
	m.pullGauge(ours+"source_unreadable", "Manifests that cannot be read or are not valid; a missing directory counts as one. Their last good content stays in use.",
		func(e emit) { e(float64(count()), "file") }, "source")
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
