package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A stage is one level of the tests.
type stage struct {
	name   string
	about  string
	after  []string // names of the stages that have to pass first; those that are not part of the run are ignored
	behind []string // names of stages that have to end first, where they are part of the run
	cores  float64  // processors that the stage keeps busy; it starts while that many are free; with 0 it never waits for others
	nice   int      // niceness of its processes (nice(1)): compilers give way to guests, whose clients wait for answers
	spare  bool     // its processes get only what others leave (SCHED_IDLE, sched(7)), and it waits only for others of this kind
	timed  bool     // goes by the clock: run once more, alone, if it fails as a whole
	run    func(ctx context.Context, r *recorder) error
}

// errSkipped is wrapped by the error of a stage that this machine cannot run. The text has the reason.
var errSkipped = errors.New("skipped")

// skipped returns an error that ends a stage without failing the run.
func skipped(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errSkipped, fmt.Sprintf(format, args...))
}

// verdict is how a stage ended.
type verdict string

// The verdicts. A stage is blocked when one that it needs did not pass, and unsteady when what failed in it passed alone.
const (
	passed   verdict = "ok"
	failed   verdict = "FAILED"
	absent   verdict = "skipped"
	blocked  verdict = "blocked"
	unsteady verdict = "unsteady"
)

// good reports whether a stage that needs this one may start.
func (v verdict) good() bool { return v == passed || v == absent || v == unsteady }

// schedule runs the stages and returns when all have ended. A stage that fails does not stop those that do not need it.
type schedule struct {
	stages   []*stage
	capacity float64 // processors
	recorder func(s *stage) *recorder
	ended    func(s *stage, r *recorder)
	verdicts map[string]verdict
	// recorders are those of the stages that have run.
	recorders map[string]*recorder
	running   map[string]bool
	// free are the processors for stages that have their own, spare those for stages that take what is left.
	free, spare float64
	mu          sync.Mutex
	changed     *sync.Cond
}

func newSchedule(stages []*stage, capacity float64) *schedule {
	s := &schedule{
		stages: stages, capacity: capacity, free: capacity, spare: capacity,
		verdicts: map[string]verdict{}, recorders: map[string]*recorder{}, running: map[string]bool{},
	}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// run starts each stage when its turn has come: in the order of the list, as far as processors are
// free. Failed stages run once more in the end.
func (s *schedule) run(ctx context.Context) {
	s.runOnce(ctx)
	s.repeat(ctx)
}

func (s *schedule) runOnce(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.verdicts) < len(s.stages) {
		if !s.startReady(ctx) {
			s.changed.Wait()
		}
	}
}

// startReady starts every stage that may run now and reports whether it changed anything.
func (s *schedule) startReady(ctx context.Context) (changed bool) {
	for _, st := range s.stages {
		if s.running[st.name] || s.verdicts[st.name] != "" {
			continue
		}
		ready, missing := s.ready(st)
		switch {
		case missing != "" || ctx.Err() != nil:
			s.verdicts[st.name], changed = blocked, true
			r := s.recorder(st)
			r.finish(blocked, fmt.Errorf("needs %s", missing))
			s.ended(st, r)
		case ready && (*s.processors(st) >= st.cores || len(s.running) == 0):
			s.running[st.name], changed = true, true
			*s.processors(st) -= st.cores
			go s.runStage(ctx, st)
		}
	}
	return changed
}

// processors returns how many a stage could have now.
func (s *schedule) processors(st *stage) *float64 {
	if st.spare {
		return &s.spare
	}
	return &s.free
}

// ready reports whether everything the stage needs has ended, and names what did not pass.
func (s *schedule) ready(st *stage) (ready bool, missing string) {
	for _, other := range s.stages {
		if slices.Contains(st.behind, other.name) && s.verdicts[other.name] == "" {
			return false, ""
		}
	}
	for _, name := range st.after {
		if !slices.ContainsFunc(s.stages, func(other *stage) bool { return other.name == name }) {
			continue
		}
		got := s.verdicts[name]
		if got == "" {
			return false, ""
		}
		if !got.good() {
			return false, name
		}
	}
	return true, ""
}

// runStage runs in a goroutine of its own.
func (s *schedule) runStage(ctx context.Context, st *stage) {
	r := s.recorder(st)
	err := st.run(ctx, r)
	result := passed
	switch {
	case errors.Is(err, errSkipped):
		result = absent
	case err != nil || r.counts().failed > 0:
		result = failed
	}
	r.finish(result, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, st.name)
	*s.processors(st) += st.cores
	s.verdicts[st.name], s.recorders[st.name] = result, r
	s.ended(st, r)
	s.changed.Signal()
}

// ok reports whether no stage failed.
func (s *schedule) ok() bool {
	for _, v := range s.verdicts {
		if !v.good() {
			return false
		}
	}
	return true
}

// choose returns the stages with the names, and what they need, in the order of all.
func choose(all []*stage, names []string) ([]*stage, error) {
	want := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		i := slices.IndexFunc(all, func(s *stage) bool { return s.name == name })
		if i < 0 {
			return fmt.Errorf("no stage is called %q: want one of %s", name, strings.Join(stageNames(all), ", "))
		}
		if want[name] {
			return nil
		}
		want[name] = true
		for _, needed := range all[i].after {
			if err := add(needed); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s *stage) bool { return !want[s.name] }), nil
}

func stageNames(stages []*stage) (names []string) {
	for _, s := range stages {
		names = append(names, s.name)
	}
	return names
}

// seconds prints a duration as the tables have it.
func seconds(d time.Duration) string {
	if d >= time.Minute {
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}
