package kube

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// The pauses between two attempts. Each is extended at random to at most twice its length: of
// ten thousand agents at most 300 a second reach a server that comes back, for each kind.
const (
	firstPause   = 800 * time.Millisecond
	longestPause = 30 * time.Second
	pauses       = 6 // from the first to the longest
	// stableAfter is how long a watch has to live so that the next pause is a short one.
	stableAfter = 2 * time.Minute
)

// reconnectJitter is the time over which agents begin their watches again after a server ended
// all of them at once, as it does when it stops. A change of that moment is served later by at
// most this time.
const reconnectJitter = time.Second

// follow lists and watches until ctx ends, with pauses that grow while the server does not answer
// and are never two agents' at once. (The backoff that client-go has for this resets every two
// minutes, even during an outage.)
func (s *Source) follow(ctx context.Context, kind string, r *cache.Reflector) {
	pause := s.backoff()
	for ctx.Err() == nil {
		begun := time.Now()
		if err := r.ListAndWatchWithContext(ctx); err != nil {
			s.log.Debug("list and watch failed, will list again", zap.String("kind", kind), zap.Error(err)) // the caller has reported it
		}
		if time.Since(begun) > stableAfter {
			pause = s.backoff()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause.Step()):
		}
	}
}

func (s *Source) backoff() wait.Backoff {
	return wait.Backoff{Duration: s.waits.firstPause, Cap: longestPause, Steps: pauses, Factor: 2, Jitter: 1}
}

// waitJitter waits for a random time before a watch begins again that the server ended early: the
// server ended those of all agents then. client-go has pauses for errors alone and would begin the
// watch at once.
func (c *listWatcher) waitJitter(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rand.N(c.source.waits.reconnectJitter)):
		return nil
	}
}
