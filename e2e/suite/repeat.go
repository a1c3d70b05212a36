package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A repeat is a part of a stage that failed, and that can run once more by itself: a unit of a queue, a package, a whole stage.
type repeat struct {
	name string
	run  func(ctx context.Context, r *recorder) error
}

// repeats is the name of the stage that runs parts of others once more.
const repeats = "again"

// maxRepeats and repeatLimit bound how much of a run may fail by accident: more failures have a cause.
const (
	maxRepeats  = 20
	repeatLimit = 15 * time.Minute
)

// repeat runs what failed beside others once more, alone, when everything else has ended. Clients
// and agents of the tests go by the clock, and a machine that others use, too, may give them no
// time for many seconds. A stage of which every part passes now is unsteady. That is no failure,
// but the summary names the parts, because a rare fault looks the same.
func (s *schedule) repeat(ctx context.Context) {
	parts := map[*stage][]repeat{}
	all := 0
	for _, st := range s.stages {
		if s.verdicts[st.name] == failed {
			parts[st] = s.recorders[st.name].repeatable(st)
			all += len(parts[st])
		}
	}
	if all == 0 || all > maxRepeats || ctx.Err() != nil {
		return
	}
	again := &stage{name: repeats, about: "what failed beside others, once more, alone"}
	r := s.recorder(again)
	r.plan(all, "parts")
	result, end := passed, time.Now().Add(repeatLimit)
	for _, st := range s.stages {
		if len(parts[st]) == 0 {
			continue
		}
		if err := r.repeat(ctx, parts[st], end); err != nil {
			r.say("%s: %v", st.name, err)
			result = failed
			continue
		}
		s.verdicts[st.name] = unsteady
		s.recorders[st.name].unsteady(parts[st])
	}
	r.finish(result, nil)
	s.ended(again, r)
}

// repeat runs the parts one by one. The error names those that do not pass.
func (r *recorder) repeat(ctx context.Context, parts []repeat, end time.Time) error {
	var errs []error
	for _, part := range parts {
		if time.Now().After(end) || ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("%s: no time is left", part.name))
			continue
		}
		before := r.counts().failed
		r.running(repeats, part.name)
		if err := part.run(ctx, r); err != nil || r.counts().failed > before {
			errs = append(errs, errors.Join(fmt.Errorf("%s failed again", part.name), err))
		}
		r.running(repeats, "")
	}
	return errors.Join(errs...)
}

// mayRepeat notes a part that failed, and how it is run once more.
func (r *recorder) mayRepeat(name string, run func(context.Context, *recorder) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.repeats = append(r.repeats, repeat{name, run})
}

// repeatable returns the parts whose passing would undo the failure of the stage: none if a part of it cannot be repeated.
func (r *recorder) repeatable(st *stage) []repeat {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.certain:
		return nil
	case len(r.repeats) == 0 && st.timed:
		return []repeat{{st.name, st.run}}
	default:
		return r.repeats
	}
}

// unsteady notes that the parts passed when they ran alone.
func (r *recorder) unsteady(parts []repeat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdict = unsteady
	for _, part := range parts {
		r.alone = append(r.alone, part.name)
	}
}

// raced notes a data race: it counts whenever it shows, and no repeat makes it good.
func (r *recorder) raced() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.certain = true
}

// packageFailed notes a package of the race stage.
func (r *recorder) packageFailed(name string) {
	r.mayRepeat(name, func(ctx context.Context, again *recorder) error { return again.race(ctx, name) })
}

// unitFailed notes a unit of the queue that failed or was never started.
func (r *recorder) unitFailed(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, name)
}

// unitsFailed returns those of the units that failed or were never started.
func (r *recorder) unitsFailed(units []unit) []unit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(units), func(u unit) bool { return !slices.Contains(r.lost, u.name) })
}
