package topology

import (
	"slices"
	"testing"
	"time"
)

// TestTurns: each round asks the first address and some others in turn, and no address that has answered.
func TestTurns(t *testing.T) {
	at := make([]time.Time, 42)
	var turn turns
	for i, want := range [][]int{span(1, 19), span(20, 38), append(span(39, 41), span(1, 16)[1:]...)} {
		if got := turn.next(at); !slices.Equal(got, want) {
			t.Errorf("round %d asks %v, want %v", i, got, want)
		}
	}
	for i := range at[:38] {
		at[i] = time.Unix(1, 0)
	}
	for range 2 {
		if got := turn.next(at); !slices.Equal(got, span(38, 41)[1:]) {
			t.Errorf("those that are left: %v", got)
		}
	}
	if got := turn.next(nil); got != nil {
		t.Errorf("of no addresses: %v", got)
	}
	if got := turn.next(at[:1]); got != nil {
		t.Errorf("of one that has answered: %v", got)
	}
}

// span is the first address, and some that follow each other.
func span(from, to int) []int {
	out := []int{0}
	for i := from; i <= to; i++ {
		out = append(out, i)
	}
	return out
}
