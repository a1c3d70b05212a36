package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// The agent tries a scheduler or a tunnel in the kernel before it compiles a Service that
// asks for it. Refused ones are part of the host's state, so Services that ask for them are
// compiled again when that changes.

// tryAgain is how long a refused scheduler waits for its module to appear.
const tryAgain = 30 * time.Second

// inquiry is one round of questions to the kernel. A kernel that does not answer one would
// let each of the others wait for its whole deadline, too, and with it the loop.
type inquiry struct {
	unanswered error // of the question that got no answer, which is the last one that was asked
}

// errNotAsked says of a question that nobody knows the answer.
var errNotAsked = errors.New("not asked, for a question before got no answer")

// ask puts a question, unless one before got no answer: then it fails with errNotAsked.
func (q *inquiry) ask(ctx context.Context, question func(context.Context) error) error {
	if q.unanswered != nil {
		return fmt.Errorf("%w: %w", errNotAsked, q.unanswered)
	}
	err := question(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		q.unanswered = err
	}
	return err
}

// trySchedulers tries those that nobody has asked for before.
func (a *Agent) trySchedulers(ctx context.Context, inputs []catalog.Input) {
	var q inquiry
	for _, in := range inputs {
		if in.Service == nil || in.Service.Policy == nil {
			continue
		}
		if in.Service.Policy.GUE != 0 && !a.triedGUE && a.known.NoGUE == "" {
			a.tryGUE(ctx, &q)
		}
		want := in.Service.Policy.Scheduler
		if _, refused := a.known.Refused[want]; a.opts.TryScheduler == nil || want.IsZero() || refused || a.tried[want] {
			continue
		}
		a.tryScheduler(ctx, &q, want)
	}
}

// tryScheduler keeps what the kernel says to one. An error that is not about the
// scheduler counts as a refusal, too: it is asked again soon. One that was not asked is
// no news of what was refused before.
func (a *Agent) tryScheduler(ctx context.Context, q *inquiry, s scheduler.Spec) {
	err := q.ask(ctx, func(ctx context.Context) error { return a.opts.TryScheduler(ctx, s) })
	if ctx.Err() != nil {
		return // told to stop
	}
	before, refused := a.known.Refused[s]
	switch {
	case err == nil:
		a.tried[s] = true
		if !refused {
			return
		}
		a.log.Info("the kernel has the scheduler by now", zap.Stringer("scheduler", s))
		a.refuse(func(m map[scheduler.Spec]string) { delete(m, s) })
	case !refused || before != err.Error() && !errors.Is(err, errNotAsked):
		a.log.Warn("the kernel does not take the scheduler that a service asks for, that of the node is used", zap.Stringer("scheduler", s), zap.Error(err))
		a.refuse(func(m map[scheduler.Spec]string) { m[s] = err.Error() })
	}
	a.again.armUnlessSet(tryAgain)
}

// tryGUE keeps what the kernel says to tunnels by GUE.
func (a *Agent) tryGUE(ctx context.Context, q *inquiry) {
	if a.opts.TryGUE == nil {
		return
	}
	said := ""
	err := q.ask(ctx, a.opts.TryGUE)
	if ctx.Err() != nil {
		return // told to stop
	}
	if a.triedGUE = err == nil; !a.triedGUE {
		said = err.Error()
		a.again.armUnlessSet(tryAgain)
	}
	if said == a.known.NoGUE || a.known.NoGUE != "" && errors.Is(err, errNotAsked) {
		return
	}
	a.known.NoGUE, a.hostMoved = said, true
	if a.triedGUE {
		a.log.Info("the kernel forwards by GUE by now")
	} else {
		a.log.Warn("the kernel does not forward by GUE, which a service asks for: nat is used", zap.Error(err))
	}
}

// refuse changes what is known of the host, which was handed out and stays as it was.
func (a *Agent) refuse(change func(map[scheduler.Spec]string)) {
	now := maps.Clone(a.known.Refused)
	if now == nil {
		now = map[scheduler.Spec]string{}
	}
	change(now)
	a.known.Refused, a.hostMoved = now, true
}

// tryRefused asks the kernel again for what it refused, and writes what follows.
func (a *Agent) tryRefused(ctx context.Context) {
	var q inquiry
	for s := range a.known.Refused {
		a.tryScheduler(ctx, &q, s)
	}
	if a.known.NoGUE != "" {
		a.tryGUE(ctx, &q)
	}
	if len(a.known.Refused) > 0 {
		a.again.armUnlessSet(tryAgain)
	}
	if concerned, changed := a.adopt(); changed {
		a.compile(ctx, concerned)
		a.apply(ctx, false)
	}
}
