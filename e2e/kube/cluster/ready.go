package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Under emulation, on a busy machine, a start takes minutes; a program that ends is noticed at once, whatever the limit.
const (
	readyLimit = 5 * time.Minute
	readyEvery = 100 * time.Millisecond
	askLimit   = 5 * time.Second
)

// awaitReady asks until the program answers, ends, or ctx does. The error carries the last answer and the end of the log.
func awaitReady(ctx context.Context, p *process, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("not ready within %s", readyLimit))
	defer cancel()
	ticker := time.NewTicker(readyEvery)
	defer ticker.Stop()
	for {
		last := askOnce(ctx, ask)
		if last == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.ended():
			return fmt.Errorf("start %s: it ended%s", p.name(), p.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w%s", p.name(), errors.Join(context.Cause(ctx), last), p.lastWords())
		}
	}
}

func askOnce(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return ask(ctx)
}
