package kube

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// listWatcher is between a reflector and the API server: it converts the objects that arrive, ends
// calls that hang, and records the state of the server. client-go gets its own errors unchanged,
// because it decides by them; explanations go to Progress alone.
type listWatcher struct {
	*kind
	source *Source
	store  *store

	// brokenLists counts the streamed lists in a row that broke off; brokenBy is the reason of the
	// last one, until List was refused for it. A stream writes them before its reflector sees its
	// end.
	brokenLists int
	brokenBy    error
	// short: the last watch ended before its requested time.
	short atomic.Bool
}

var _ cache.ListerWatcherWithContext = (*listWatcher)(nil)

// List implements cache.ListerWatcher.
func (c *listWatcher) List(o metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), o)
}

// Watch implements cache.ListerWatcher.
func (c *listWatcher) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return c.WatchWithContext(context.Background(), o)
}

// ListWithContext implements cache.ListerWithContext.
func (c *listWatcher) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := c.brokenBy; err != nil {
		c.brokenBy = nil
		return nil, fmt.Errorf("the list broke off: %w", err)
	}
	o.LabelSelector, o.FieldSelector = c.labels, c.fields
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	allowed := &readBudget{most: c.source.maxListBytes, keeps: true}
	limited = withReadBudget(withReporter(limited, c.failureReporter(ctx, "list")), allowed)
	in, err := c.list(limited, o)
	if err != nil {
		c.failureReporter(ctx, "list")(err)
		return nil, err
	}
	c.source.markSeen(c.name)
	out, err := c.convertList(in)
	if err == nil && len(out.Items) == 0 && allowed.missingKind() {
		err = fmt.Errorf("%w: the answer is no list of %s: JSON without a kind", errUnexpectedObject, c.name)
	}
	if err != nil {
		err = fmt.Errorf("list %s: %w", c.name, err)
		c.failureReporter(ctx, "list")(err)
		return nil, err
	}
	return out, nil
}

// WatchWithContext implements cache.WatcherWithContext.
func (c *listWatcher) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	c.brokenBy = nil
	listing := o.SendInitialEvents != nil && *o.SendInitialEvents
	if c.short.Swap(false) && !listing {
		if err := c.waitJitter(ctx); err != nil {
			return nil, err
		}
	}
	o.LabelSelector, o.FieldSelector = c.labels, c.fields
	s := newStream(ctx, c, listing)
	if o.TimeoutSeconds != nil {
		s.lasts = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	in, err := c.watch(withReadBudget(withReporter(s.ctx, s.fault), s.readBudget), o)
	if err == nil {
		go s.run(in)
		return s, nil
	}
	if s.expired() {
		err = errIdle
	}
	s.Stop()
	if !s.listing || !unstreamed(err) {
		s.fault(err)
	}
	if s.listing && unanswered(err) {
		c.onStreamBroken(err)
		// client-go by itself waits for a server that refuses connections, up to a minute and
		// without regard to the context. After an error of an unknown type it lists at once.
		err = errors.New(err.Error())
	}
	return nil, err
}

// onStreamBroken records why a streamed list broke off. client-go would continue with a plain list,
// which needs several times the memory here and in the server. The next List is refused, so that it
// begins another stream after a pause. If several streams in a row break, a proxy may not support
// them, and the plain list is allowed. A server that was not reached does not count.
func (c *listWatcher) onStreamBroken(err error) {
	if !unreached(err) {
		c.brokenLists++
	}
	if c.brokenLists < streamTries {
		c.brokenBy = err
		return
	}
	c.brokenLists = 0
}

// failureReporter returns a function that records failures of a verb, until ctx ends.
func (c *listWatcher) failureReporter(ctx context.Context, verb string) func(error) {
	return func(err error) {
		if ctx.Err() == nil && !outdated(err) {
			c.source.failed(c.name, verb, err)
		}
	}
}

// IsWatchListSemanticsUnSupported reports to client-go that lists cannot be streamed: a fake client
// does not support that. Other clients stream (WatchListClient is on by default since client-go
// 0.35), and ask a server that refuses for a plain list.
func (c *listWatcher) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(c.source.api)
}
