package topology

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPauseAfter: an event that takes long is polled seldom, and seen late by a tenth of its time at most, or by the first pause. That leaves most of a
// processor to others, however fast it is.
func TestPauseAfter(t *testing.T) {
	for _, tt := range []struct{ took, waited, want time.Duration }{
		{0, 0, shortestPause},
		{400 * time.Microsecond, 0, 600 * time.Microsecond},
		{2 * time.Millisecond, 0, pause},
		{patience, 20 * time.Millisecond, pause},
		{400 * time.Microsecond, 20 * time.Millisecond, 2 * time.Millisecond},
		{2 * time.Millisecond, 100 * time.Millisecond, 10 * time.Millisecond},
		{0, time.Minute, longestPause},
	} {
		if got := pauseAfter(tt.took, tt.waited); got != tt.want {
			t.Errorf("a question that took %s, after %s: %s, want %s", tt.took, tt.waited, got, tt.want)
		}
	}
}

// TestHedges: a question that takes much longer than the last one is soon joined by another, and less soon by more.
func TestHedges(t *testing.T) {
	patient := hedges(hedge)
	waits := func(n int) (out []time.Duration) {
		for range n {
			out = append(out, patient.next())
		}
		return out
	}
	if got := waits(2); got[0] != hedge || got[1] != hedge {
		t.Errorf("before the first answer: %s, want %s", got, hedge)
	}
	patient.answered(400 * time.Microsecond)
	if got, want := waits(5), []time.Duration{firstHedge, 2 * firstHedge, 4 * firstHedge, hedge, hedge}; !slices.Equal(got, want) {
		t.Errorf("after an answer in 0.4 ms: %s, want %s", got, want)
	}
	patient.answered(patience)
	if got := waits(1); got[0] != hedge {
		t.Errorf("after an answer that was late: %s, want %s", got, hedge)
	}
}

// TestUntilDoesNotWaitForWhatWasLost has the packets of each question lost until, by the fake clock, the moment after the first
// question. Until returns the answer to a later question long before the first question is given up.
func TestUntilDoesNotWaitForWhatWasLost(t *testing.T) {
	for _, tt := range []struct {
		name       string
		took       time.Duration // of the last question that was answered
		lost, most time.Duration
	}{
		{"before any answer", 0, time.Millisecond, hedge},
		{"after an answer in 0.4 ms", 400 * time.Microsecond, time.Millisecond, firstHedge},
		{"lost for longer", 400 * time.Microsecond, 10 * time.Millisecond, 10*time.Millisecond + 8*time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &Network{asking: make(chan func())}
				w.took.Store(int64(tt.took))
				var running sync.WaitGroup
				for range askers {
					running.Go(func() { _ = w.ask() })
				}
				began := time.Now()
				ask := func(ctx context.Context) (netip.Addr, error) {
					if time.Since(began) >= tt.lost {
						return Endpoint(1), nil
					}
					ctx, cancel := context.WithTimeout(ctx, patience)
					defer cancel()
					<-ctx.Done()
					return netip.Addr{}, ctx.Err()
				}
				if _, err := w.until(t.Context(), ask, netip.Addr{}, time.Minute); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > tt.most {
					t.Errorf("the answer came after %s, want at most %s", took, tt.most)
				}
				close(w.asking)
				running.Wait()
			})
		})
	}
}
