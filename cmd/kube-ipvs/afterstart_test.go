package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// What a start has no time for waits until everything was written once, but not for ever.
func TestAfterStart(t *testing.T) {
	const most = 10 * time.Second
	for _, tt := range []struct {
		name        string
		filled, end time.Duration // 0 is never
		after       time.Duration
		want        bool
	}{
		{name: "the start is over", filled: 3 * time.Second, after: 3 * time.Second, want: true},
		{name: "it never is", after: most, want: true},
		{name: "the process ends before", filled: 3 * time.Second, end: time.Second, after: time.Second, want: false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := &program{filled: make(chan struct{})}
				if tt.filled > 0 {
					time.AfterFunc(tt.filled, func() { close(p.filled) })
				}
				if tt.end > 0 {
					time.AfterFunc(tt.end, cancel)
				}
				began := time.Now()
				if got := p.afterStart(ctx, most); got != tt.want || time.Since(began) != tt.after {
					t.Errorf("%v after %s, want %v after %s", got, time.Since(began), tt.want, tt.after)
				}
			})
		})
	}
}
