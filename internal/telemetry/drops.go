package telemetry

import (
	"context"
	"time"
)

// dropsRest is how long a reading of counters is shown, dropsPatience how long it may take: it
// is some processes, which list whole tables.
const (
	dropsRest     = 30 * time.Second
	dropsPatience = 5 * time.Second
)

// Dropped is the number of packets that rules dropped for one reason, since the agent began
// to count.
type Dropped struct {
	Reason  string
	Family  string // IPv4 or IPv6
	Packets uint64
}

// Drops shows how many packets rules dropped or refused. It reads at a scrape, once in 30 s at
// most. Values that cannot be read are absent.
func (m *Metrics) Drops(read func(ctx context.Context) ([]Dropped, error)) {
	drops := seldom(dropsRest, dropsPatience, read)
	m.pullCounter(ours+"dropped_packets_total", "Packets of all Services that rules of the agent dropped or rejected since it started. A retransmitted packet counts again.", func(e emit) {
		for _, d := range drops() {
			e(float64(d.Packets), d.Reason, d.Family)
		}
	}, "reason", "family")
}
