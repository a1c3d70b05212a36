package world

import (
	"slices"
	"testing"
	"time"
)

// TestTurns: the first is asked in each round, each other once in so many, and nobody who has answered.
func TestTurns(t *testing.T) {
	at := make([]time.Time, 22)
	var turn turns
	for i, want := range [][]int{
		{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 10, 11, 12, 13, 14, 15, 16, 17, 18}, {0, 19, 20, 21, 1, 2, 3, 4, 5, 6},
	} {
		if got := turn.next(at); !slices.Equal(got, want) {
			t.Errorf("round %d asks %v, want %v", i, got, want)
		}
	}
	for i := range at[:18] {
		at[i] = time.Unix(1, 0)
	}
	for range 2 {
		if got := turn.next(at); !slices.Equal(got, []int{18, 19, 20, 21}) {
			t.Errorf("those that are left: %v", got)
		}
	}
	if got := turn.next(nil); got != nil {
		t.Errorf("of nobody: %v", got)
	}
	if got := turn.next(at[:1]); got != nil {
		t.Errorf("of one that has answered: %v", got)
	}
}
