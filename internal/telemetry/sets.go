package telemetry

import (
	"context"
	"sync"
	"time"
)

// SetFill is how full one set is.
type SetFill struct {
	Name string
	// Entries are those in it, Most as many as it takes; it grows once it refuses one.
	Entries, Most uint32
}

// setsRest is how long a reading of sets is shown, setsPatience how long it may take.
const (
	setsRest     = 10 * time.Second
	setsPatience = 2 * time.Second
)

// seldom returns what was read last, and reads again after a while. After a failure it returns
// nothing.
func seldom[T any](rest, patience time.Duration, read func(context.Context) ([]T, error)) func() []T {
	var (
		mu   sync.Mutex
		last []T
		at   time.Time
	)
	return func() []T {
		mu.Lock()
		defer mu.Unlock()
		if at.IsZero() || time.Since(at) >= rest {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var err error
			if last, err = read(ctx); err != nil {
				last = nil
			}
			at = time.Now()
		}
		return last
	}
}

// Sets shows how full the sets are that have a limit, and what they hold. It reads at a scrape, at
// most once in ten seconds; values that cannot be read are absent.
func (m *Metrics) Sets(read func(ctx context.Context) ([]SetFill, error)) {
	sets := seldom(setsRest, setsPatience, read)
	m.pullGauge(ours+"set_entries", "Entries of a set that has a limit.", func(e emit) {
		for _, s := range sets() {
			e(float64(s.Entries), s.Name)
		}
	}, "set")
	m.pullGauge(ours+"set_fill_ratio", "Fill ratio of a set that has a limit; 1 is full. A full set is replaced by a larger one when it refuses an entry.", func(e emit) {
		for _, s := range sets() {
			e(float64(s.Entries)/float64(max(1, s.Most)), s.Name)
		}
	}, "set")
}
