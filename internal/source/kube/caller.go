package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// caller stands between a reflector and the API server: it converts what arrives,
// ends what hangs, and notes how the server does. What client-go decides by an error
// it shall decide by the error that it made: explanations go to Progress alone.
type caller struct {
	*kind
	source *Source
	store  *store

	// breaks counts the streamed lists in a row that broke off; broke is why the last
	// one did, until List was refused for it. A stream writes them before its reflector
	// hears of its end.
	breaks int
	broke  error
	// short: the last watch ended before its time.
	short atomic.Bool
}

var _ cache.ListerWatcherWithContext = (*caller)(nil)

// List implements cache.ListerWatcher.
func (c *caller) List(o metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), o)
}

// Watch implements cache.ListerWatcher.
func (c *caller) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return c.WatchWithContext(context.Background(), o)
}

// ListWithContext implements cache.ListerWithContext.
func (c *caller) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := c.broke; err != nil {
		c.broke = nil
		return nil, fmt.Errorf("the stream of the list broke off: %w", err)
	}
	o.LabelSelector, o.FieldSelector = c.labels, c.fields
	limited, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	allowed := &allowance{most: c.source.mostList, keeps: true}
	limited = withAllowance(withReporter(limited, c.fails(ctx, "list")), allowed)
	in, err := c.list(limited, o)
	if err != nil {
		c.fails(ctx, "list")(err)
		return nil, err
	}
	c.source.heard(c.name)
	out, err := c.convertList(in)
	if err == nil && len(out.Items) == 0 && allowed.kindless() {
		err = fmt.Errorf("%w: what answers is no list of %s: JSON without a kind", errStrange, c.name)
	}
	if err != nil {
		err = fmt.Errorf("list %s: %w", c.name, err)
		c.fails(ctx, "list")(err)
		return nil, err
	}
	return out, nil
}

// WatchWithContext implements cache.WatcherWithContext.
func (c *caller) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	c.broke = nil
	listing := o.SendInitialEvents != nil && *o.SendInitialEvents
	if c.short.Swap(false) && !listing {
		if err := c.scatter(ctx); err != nil {
			return nil, err
		}
	}
	o.LabelSelector, o.FieldSelector = c.labels, c.fields
	s := newStream(ctx, c, listing)
	if o.TimeoutSeconds != nil {
		s.lasts = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	in, err := c.watch(withAllowance(withReporter(s.ctx, s.fault), s.allowance), o)
	if err == nil {
		go s.run(in)
		return s, nil
	}
	if s.expired() {
		err = errSilent
	}
	s.Stop()
	if !s.listing || !unstreamed(err) {
		s.fault(err)
	}
	if s.listing && lost(err) {
		c.brokeOff(err)
		// client-go waits by itself where nobody listens, up to a minute and without
		// looking at the context; an error that it does not know has it list at once.
		err = errors.New(err.Error())
	}
	return nil, err
}

// scatter waits at random before a watch is begun again that the server did not end in its
// time: it ended those of all agents then. client-go, which would begin it at once, has
// pauses for errors alone.
func (c *caller) scatter(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rand.N(c.source.waits.scattered)):
		return nil
	}
}

// brokeOff notes why a streamed list broke off, which is no reason to list otherwise:
// client-go would go on with a plain list, several times the memory here and there. It is
// refused that, and begins another stream after a pause. Where one after the other breaks,
// something in between may bear none, and the plain list is asked for. A server that was
// not reached at all counts for nothing.
func (c *caller) brokeOff(err error) {
	if !unreached(err) {
		c.breaks++
	}
	if c.breaks < streamTries {
		c.broke = err
		return
	}
	c.breaks = 0
}

// fails returns what notes failures of a verb, until ctx ends.
func (c *caller) fails(ctx context.Context, verb string) func(error) {
	return func(err error) {
		if ctx.Err() == nil && !outdated(err) {
			c.source.failed(c.name, verb, err)
		}
	}
}

// IsWatchListSemanticsUnSupported tells client-go that lists cannot be streamed: by a
// fake client, which does not know how. Otherwise they are (WatchListClient is on by
// default since client-go 0.35), and a server that refuses is asked for a plain list.
func (c *caller) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(c.source.api)
}
