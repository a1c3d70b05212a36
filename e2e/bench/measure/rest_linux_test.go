package measure

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRestFollowsTheCPUTime has a program use CPU time by the fake clock: a share of each second until it rests.
func TestRestFollowsTheCPUTime(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct {
		name     string
		share    float64
		works    time.Duration
		at, took time.Duration
		over     bool
	}{
		{"it rests", 0, 0, 0, 2 * second, false},
		{"it does little all the time", 0.05, time.Hour, 0, 2 * second, false},
		{"it works for a while", 0.5, second, second, 3 * second, false},
		{"it works all the time", 0.1, time.Hour, 4*second + glance, 4*second + glance, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				cpu := func() (time.Duration, error) {
					return time.Duration(tt.share * float64(min(time.Since(began), tt.works))), nil
				}
				alive := func() error { return nil }
				at, over, err := awaitRest(t.Context(), cpu, alive, 2*second, 4*second)
				if at.Sub(began) != tt.at || time.Since(began) != tt.took || over != tt.over || err != nil {
					t.Errorf("worked until %s, over %t after %s, %v; want %s, %t, %s", at.Sub(began), over, time.Since(began), err, tt.at, tt.over, tt.took)
				}
			})
		})
	}
}

func TestRestEndsWithTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alive := func() error { return ErrEnded }
		cpu := func() (time.Duration, error) { return 0, nil }
		if _, _, err := awaitRest(t.Context(), cpu, alive, time.Second, time.Minute); !errors.Is(err, ErrEnded) {
			t.Errorf("error is %v, want %v", err, ErrEnded)
		}
	})
}
