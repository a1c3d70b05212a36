package telemetry

import "time"

// ReadServices reads as a scrape does that comes late enough.
func ReadServices(from ServiceSources) func() {
	s := &services{sources: from, counters: newServiceCounters(from.Most), failed: map[string]uint64{}}
	return func() {
		s.read = time.Time{}
		s.refresh()
	}
}
