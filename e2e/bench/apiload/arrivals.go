package apiload

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// Arrivals are the times at which this process, which follows the slices of the probes and does nothing with them, was told of their endpoints:
// no candidate can be faster.
type Arrivals struct {
	events watch.Interface

	mu   sync.Mutex
	seen map[netip.Addr]time.Time
	news chan struct{} // one of them came; closed when no more can
}

// WatchProbes follows the slices of the probes until ctx ends or Stop.
func (l *Load) WatchProbes(ctx context.Context) (*Arrivals, error) {
	names := make([]string, Probes)
	for p := range names {
		names[p] = probeName(p)
	}
	slices := l.client.DiscoveryV1().EndpointSlices(namespace)
	of := fmt.Sprintf("%s in (%s)", discovery.LabelServiceName, strings.Join(names, ","))
	list, err := slices.List(ctx, metav1.ListOptions{LabelSelector: of})
	if err != nil {
		return nil, fmt.Errorf("list the probes: %w", err)
	}
	// An API server ends every watch after half an hour or more (--min-request-timeout).
	events, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = of
			return slices.Watch(ctx, o)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch the probes: %w", err)
	}
	a := &Arrivals{events: events, seen: map[netip.Addr]time.Time{}, news: make(chan struct{}, 1)}
	go a.follow()
	return a, nil
}

// Stop ends it.
func (a *Arrivals) Stop() { a.events.Stop() }

func (a *Arrivals) follow() {
	defer close(a.news)
	for e := range a.events.ResultChan() {
		now := time.Now()
		s, ok := e.Object.(*discovery.EndpointSlice)
		if !ok {
			continue
		}
		a.mu.Lock()
		for i := range s.Endpoints {
			addr, err := netip.ParseAddr(s.Endpoints[i].Addresses[0])
			if _, known := a.seen[addr]; err == nil && !known {
				a.seen[addr] = now
			}
		}
		a.mu.Unlock()
		select {
		case a.news <- struct{}{}:
		default:
		}
	}
}

// At is when the endpoint was told, which is waited for.
func (a *Arrivals) At(ctx context.Context, addr netip.Addr) (time.Time, error) {
	for {
		a.mu.Lock()
		at, known := a.seen[addr]
		a.mu.Unlock()
		if known {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return at, ctx.Err()
		case _, more := <-a.news:
			if !more {
				return at, fmt.Errorf("the watch of the probes ended before %s came", addr)
			}
		}
	}
}
