package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// A round that takes long comes less often, so that looking for drift never costs more
// than its share of a processor.
func TestLongAuditsComeLessOften(t *testing.T) {
	for _, tt := range []struct {
		name        string
		takes, rest time.Duration
		rounds      uint64 // in an hour
	}{
		{"short", 12 * time.Millisecond, 30 * time.Second, 119},
		{"long", 240 * time.Millisecond, 10 * time.Minute, 6},
		{"very long", time.Minute, 10 * time.Minute, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMode()
			m.auditTakes = tt.takes
			run(t, m, func(w *world) {
				w.SetState(model.FromFile, source.Complete)
				w.after(time.Hour)
				s, err := w.loop.Status(w.Context())
				if err != nil || s.Audits != tt.rounds || s.AuditRest != tt.rest.Seconds() {
					w.Errorf("%d rounds, %v s to the next, want %d and %s; error %v", s.Audits, s.AuditRest, tt.rounds, tt.rest, err)
				}
				if c := w.loop.Condition(); c.AuditTook != tt.takes || c.AuditRest != tt.rest {
					w.Errorf("condition: took %s, rest %s", c.AuditTook, c.AuditRest)
				}
			})
		})
	}
}

// What took long to write is not read at once: the first round would cost as much as many
// that come later.
func TestFirstAuditAfterMuchWriting(t *testing.T) {
	for _, tt := range []struct {
		name         string
		takes, first time.Duration
	}{
		{name: "little", takes: 48 * time.Millisecond, first: 30 * time.Second},
		{name: "much", takes: 600 * time.Millisecond, first: 375 * time.Second},
		{name: "very much", takes: time.Minute, first: 10 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMode()
			m.writingTakes = tt.takes
			run(t, m, func(w *world) {
				w.SetService(service("web", "10.96.0.1"))
				w.SetState(model.FromFile, source.Complete)
				for _, at := range []struct {
					wait   time.Duration
					audits uint64
				}{{tt.first - time.Second, 0}, {2 * time.Second, 1}, {30 * time.Second, 2}} {
					w.after(at.wait)
					s, err := w.loop.Status(w.Context())
					if err != nil || s.Audits != at.audits || at.audits == 0 && s.AuditRest != tt.first.Seconds() {
						w.Errorf("after %s more: %d rounds, %v s to the next, want %d; error %v", at.wait, s.Audits, s.AuditRest, at.audits, err)
					}
				}
			})
		})
	}
}

// Who cannot look for drift says so until a round has read everything: nothing is pending
// meanwhile, so nothing else tells of it.
func TestAuditThatCannotReadIsTold(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		for _, tt := range []struct {
			err  error
			told string
			seen uint64
		}{{nil, "", 0}, {errors.New("read sets: busy"), "read sets: busy", 1}, {errors.New("read sets: denied"), "read sets: denied", 2}, {nil, "", 2}} {
			m.locked(func() { m.auditErr = tt.err })
			w.after(31 * time.Second)
			s, err := w.loop.Status(w.Context())
			if c := w.loop.Condition(); err != nil || s.AuditError != tt.told || c.AuditFailures != tt.seen {
				w.Errorf("audits fail with %v: status has %q, %d counted, want %q and %d; error %v", tt.err, s.AuditError, c.AuditFailures, tt.told, tt.seen, err)
			}
		}
	})
}

// What another mode left and cannot be removed is told of until it is.
func TestSweepThatFailsIsTold(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		for _, tt := range []struct {
			err  error
			told string
			seen uint64
		}{{errors.New("delete sets: busy"), "delete sets: busy", 1}, {errors.New("delete sets: denied"), "delete sets: denied", 2}, {nil, "", 2}} {
			if err := w.loop.Sweep(w.Context(), func(context.Context) error { return tt.err }); !errors.Is(err, tt.err) {
				w.Errorf("got %v, want %v", err, tt.err)
			}
			w.after(31 * time.Second) // an audit does not end it
			s, err := w.loop.Status(w.Context())
			if c := w.loop.Condition(); err != nil || s.SweepError != tt.told || c.AuditFailures != tt.seen {
				w.Errorf("a sweep fails with %v: status has %q, %d counted, want %q and %d; error %v", tt.err, s.SweepError, c.AuditFailures, tt.told, tt.seen, err)
			}
		}
	})
}

// A round that could not read the machine does not say that the node is in step.
func TestBlindRoundIsNoSignOfLife(t *testing.T) {
	run(t, newMode(), func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(31 * time.Second)
		before := w.loop.Condition().Updated
		w.host.failing(errors.New("no answer"))
		w.after(time.Minute)
		if now := w.loop.Condition().Updated; !now.Equal(before) {
			w.Errorf("in step at %s, after rounds that could not read the host; before them at %s", now, before)
		}
		w.host.failing(nil)
		w.after(time.Minute)
		if now := w.loop.Condition().Updated; !now.After(before) {
			w.Errorf("not in step since %s", now)
		}
	})
}
