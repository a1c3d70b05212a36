package conntrack

import (
	"context"
	"time"
)

// paceFree is how many flows of a dump are read without a pause.
const paceFree = 10_000

// pace keeps a long dump from using a whole CPU. It pauses so that the flows read each second are
// limited, and at least as long as it works.
type pace struct {
	perFlow time.Duration
	mark    time.Time // when the last pause ended
	flows   int       // how many flows were read by then
}

func newPace(rate int) *pace {
	return &pace{perFlow: time.Second / time.Duration(rate), mark: time.Now(), flows: paceFree}
}

// paceStep is the shortest pause: a shorter one costs more than it gives.
const paceStep = 2 * time.Millisecond

// rest pauses if enough was read since the last pause, of flows in all.
func (p *pace) rest(ctx context.Context, flows int) error {
	now := time.Now()
	worked := now.Sub(p.mark)
	if flows <= p.flows {
		p.mark = now
		return nil
	}
	due := max(time.Duration(flows-p.flows)*p.perFlow-worked, worked)
	if due < paceStep {
		return nil
	}
	err := sleep(ctx, due)
	p.mark, p.flows = time.Now(), flows
	return err
}

// sleep waits, or returns why the context ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
