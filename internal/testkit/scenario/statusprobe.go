package scenario

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// overAfter is how long nothing may ask for the row in trouble until it is over.
const overAfter = 200 * time.Millisecond

// statusProbe watches an agent from the first hit of its trouble on: it has to answer, and its
// status and its metrics have to tell of what lasts. Then the trouble ends.
type statusProbe struct {
	struck, told atomic.Bool
	done         chan struct{} // closed when no watcher is left
	once         sync.Once
	gone         sync.WaitGroup
	mu           sync.Mutex
	err          error
}

// begin returns what is to be called at the first hit.
func (w *statusProbe) begin(f *Fakes) func() {
	w.done = make(chan struct{})
	return func() {
		w.struck.Store(true)
		w.gone.Go(func() {
			if err := w.watch(f); err != nil {
				w.mu.Lock()
				w.err = err
				w.mu.Unlock()
			}
		})
	}
}

// leave ends the trouble, and the watching.
func (w *statusProbe) leave(f *Fakes) {
	if w.done == nil {
		return
	}
	f.tap.endTrouble()
	w.once.Do(func() { close(w.done) })
	w.gone.Wait()
}

func (w *statusProbe) verdict() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// watch asks until the agent has told, and heals it then.
func (w *statusProbe) watch(f *Fakes) error {
	defer f.tap.endTrouble()
	interval, _ := f.Pace()
	begun, last, asked := time.Now(), 0, time.Now()
	for {
		hits, lasts := f.tap.lasting()
		if hits != last {
			last, asked = hits, time.Now()
		}
		status, err := w.ask(f)
		switch {
		case !lasts:
			return err
		case err != nil:
			return err
		case told(status) && metered(f.Metrics()):
			w.told.Store(true)
			return nil
		case time.Since(asked) > overAfter:
			return nil
		case time.Since(begun) > poll.Patience:
			return fmt.Errorf("the agent does not tell of its trouble: last error %q, of audits %q, of the sweep %q", status.LastError, status.AuditError, status.SweepError)
		}
		select {
		case <-time.After(interval):
		case <-w.done:
			return nil
		}
	}
}

// ask is Status of an agent that has to answer, if one runs.
func (w *statusProbe) ask(f *Fakes) (agent.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), poll.Patience)
	defer cancel()
	status, err := f.Status(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return status, fmt.Errorf("the agent did not answer for %s: %w", poll.Patience, err)
	}
	return status, nil // or none runs
}

func told(s agent.Status) bool {
	return strings.Contains(s.LastError+s.AuditError+s.SweepError, errInjected.Error())
}

var failing = regexp.MustCompile(`(?m)^kube_ipvs_(loop_failures|audit_failures_total) [1-9]`)

// metered reports whether metrics show a failure.
func metered(metrics string) bool { return failing.MatchString(metrics) }
