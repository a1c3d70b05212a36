package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

func TestCondition(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		is := func(step string, served, late, stuck bool, failures uint64, lastError string) {
			w.Helper()
			c, now := w.loop.Condition(), time.Now()
			if c.Served != served || c.Late(now) != late || c.Stuck(now) != stuck || c.Failures != failures || c.LastError != lastError {
				w.Errorf("%s: %+v, late %t, stuck %t", step, c, c.Late(now), c.Stuck(now))
			}
		}
		w.SetNode(model.FromFile, model.Node{Name: "node-a"}) // some of it came
		w.after(time.Hour)
		is("an API server that is away from the start, or half away", false, false, false, 0, "")
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		is("in sync", true, false, false, 0, "")
		if c := w.loop.Condition(); time.Since(c.Updated) > time.Second || c.Patience != time.Minute {
			w.Errorf("condition %+v", c)
		}

		m.locked(func() { m.applyErr = errors.New("busy") })
		w.SetService(service("a", "10.96.0.1"))
		w.after(150 * time.Millisecond)
		is("a row fails twice", true, false, false, 2, "busy")
		w.after(2 * time.Minute)
		if c := w.loop.Condition(); !c.Late(time.Now()) || c.Failures < 5 {
			w.Errorf("a row fails for long: %+v", c)
		}
		m.locked(func() { m.applyErr = nil })
		w.after(time.Minute)
		is("and works again", true, false, false, 0, "")
	})
}

// A loop that is stuck in the kernel is seen from outside, without a change that
// would wait for it.
func TestStuckLoopIsSeen(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		stall := make(chan struct{})
		go func() { _ = w.loop.Do(context.Background(), func(context.Context) { <-stall }) }()
		w.after(59 * time.Second)
		if c := w.loop.Condition(); c.Busy.IsZero() || c.Stuck(time.Now()) {
			w.Errorf("busy, not stuck yet: %+v", c)
		}
		w.after(2 * time.Second)
		if c := w.loop.Condition(); !c.Stuck(time.Now()) || c.Late(time.Now()) {
			w.Errorf("stuck: %+v", c)
		}
		close(stall)
		synctest.Wait()
		if c := w.loop.Condition(); !c.Busy.IsZero() {
			w.Errorf("free again: %+v", c)
		}
	})
}

// Dashboards ask how long ago the node was in step; on a quiet one audits say so.
func TestAQuietNodeIsInStep(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(10 * time.Minute)
		c, p := w.loop.Condition(), w.seen.passes.Load()
		if age := time.Since(c.Updated); age > time.Minute || !p.OK || time.Since(p.At) > time.Minute {
			w.Errorf("in step %s ago, pass %+v", age, p)
		}
		m.locked(func() { m.applyErr = errors.New("busy") })
		w.SetService(service("a", "10.96.0.1"))
		w.after(10 * time.Minute)
		if age := time.Since(w.loop.Condition().Updated); age < 9*time.Minute {
			w.Errorf("a row fails, but in step %s ago", age)
		}
	})
}

// The time that a change of endpoints took is told when it is in the kernel, once.
func TestTriggersAreToldWhenWritten(t *testing.T) {
	m := newMode()
	m.applyErr = errors.New("busy")
	run(t, m, func(w *world) {
		at := time.Now().Add(time.Second)
		s := model.Slice{ID: model.SliceID{Origin: model.FromFile, Namespace: "default", Name: "a-1"}, Family: model.IPv4, Triggered: at,
			Service: service("a", "10.96.0.1").ID}
		w.SetService(service("a", "10.96.0.1"))
		w.SetSlice(s)
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		if p := w.seen.passes.Load(); p.OK || len(p.Triggers) > 0 {
			w.Errorf("pass that failed: %+v", p)
		}
		m.locked(func() { m.applyErr = nil })
		var told []catalog.Trigger
		for range 60 {
			w.after(time.Second)
			if p := w.seen.passes.Swap(&agent.Pass{}); p.OK {
				told = append(told, p.Triggers...)
			}
		}
		if diff := cmp.Diff([]catalog.Trigger{{Family: model.IPv4, At: at}}, told); diff != "" {
			w.Errorf("triggers (-want +got):\n%s", diff)
		}
	})
}
