package vservertest

import (
	"context"
	"fmt"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// hangTime is what a hanging call takes without a deadline of its caller's, the
// Handle's own bound.
const hangTime = 5 * time.Second

// plan is what is to go wrong. All of it stays until Heal, but for the numbered
// calls, which pass by.
type plan struct {
	calls  int // begun so far
	nth    map[int]error
	hangs  map[int]bool
	always error
	rows   map[string]error
	hidden map[string]bool
	// surveys is what all surveys fail with, order what they show instead of each server
	// once.
	surveys error
	order   func([]vserver.ServerKey) []vserver.ServerKey
}

// FailCall makes the nth call from now on fail as a whole, 1 being the next.
// Every method that would talk to the kernel counts as one call; Probe counts
// as two.
func (f *Fake) FailCall(nth int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.plan.nth, f.plan.calls+nth, err)
}

// HangCall makes the nth call from now on hang until the context's deadline,
// or for 5 s; the call has no effect.
func (f *Fake) HangCall(nth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.plan.hangs, f.plan.calls+nth, true)
}

// FailAlways makes every call fail.
func (f *Fake) FailAlways(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan.always = err
}

// FailRow makes every write of one row fail and lets its neighbours pass. The
// key is a vserver.ServerKey or vserver.DestinationKey.
func (f *Fake) FailRow(key fmt.Stringer, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.plan.rows, key.String(), err)
}

// Hide leaves a row out of everything that is read, as an incomplete dump would.
func (f *Fake) Hide(key fmt.Stringer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(&f.plan.hidden, key.String(), true)
}

// FailSurveys makes every survey fail and nothing else, as if the list could not be opened or
// parsed. With nil they work again.
func (f *Fake) FailSurveys(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan.surveys = err
}

// ReorderSurveys makes surveys pass over servers or repeat them, as the kernel's list does
// when others come and go: they show what order makes of all keys.
func (f *Fake) ReorderSurveys(order func([]vserver.ServerKey) []vserver.ServerKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan.order = order
}

// Heal deletes all faults.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan{calls: f.plan.calls}
}

// begin counts a call and gives the error planned for it. It returns with the
// lock held in any case.
func (f *Fake) begin(ctx context.Context) error {
	f.mu.Lock()
	f.plan.calls++
	n := f.plan.calls
	if f.plan.hangs[n] {
		return f.hang(ctx)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := f.plan.nth[n]; err != nil {
		return err
	}
	return f.plan.always
}

// hang waits without the lock, so that a test can look at the table meanwhile.
func (f *Fake) hang(ctx context.Context) error {
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, hangTime)
	defer cancel()
	<-ctx.Done()
	f.mu.Lock()
	f.count.Reopened++
	return fmt.Errorf("%w: %w", vserver.ErrUnknown, ctx.Err())
}

// shown copies rows less the hidden ones.
func shown[K interface {
	comparable
	fmt.Stringer
}, V any](f *Fake, rows map[K]V) map[K]V {
	out := make(map[K]V, len(rows))
	for k, v := range rows {
		if len(f.plan.hidden) == 0 || !f.plan.hidden[k.String()] {
			out[k] = v
		}
	}
	return out
}

func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}
