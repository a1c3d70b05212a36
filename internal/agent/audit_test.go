package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Audits come once a period, at any cost; an audit that takes longer than a period rests as long
// as it took.
func TestAuditsComeOnceAPeriod(t *testing.T) {
	for _, tt := range []struct {
		name   string
		takes  time.Duration
		audits uint64 // in an hour
	}{
		{"short", 12 * time.Millisecond, 120},
		{"long", 2 * time.Second, 120},
		{"longer than half a period", 20 * time.Second, 90},
		{"longer than a period", time.Minute, 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMode()
			m.auditTakes = tt.takes
			run(t, m, func(w *world) {
				w.SetState(model.FromFile, source.Complete)
				w.after(time.Hour + time.Second)
				s, err := w.loop.Status(w.Context())
				if err != nil || s.Audits != tt.audits || s.AuditPeriod != 30 {
					w.Errorf("%d audits, one every %v s, want %d; error %v", s.Audits, s.AuditPeriod, tt.audits, err)
				}
				if r := s.LastAudit; r == nil || r.CostSeconds != tt.takes.Seconds() || r.Seconds != tt.takes.Seconds() {
					w.Errorf("the last audit: %+v", r)
				}
				if c := w.loop.Condition(); c.AuditTook != tt.takes || c.AuditPeriod != 30*time.Second || !c.AuditEnded.Equal(s.LastAudit.Ended) {
					w.Errorf("condition: %+v", c)
				}
			})
		})
	}
}

// The first audit begins a period after the first write, however long writing took.
func TestFirstAudit(t *testing.T) {
	m := newMode()
	m.writingTakes = time.Minute
	run(t, m, func(w *world) {
		w.SetService(service("web", "10.96.0.1"))
		w.SetState(model.FromFile, source.Complete)
		for _, at := range []struct {
			wait   time.Duration
			audits uint64
		}{{29 * time.Second, 0}, {2 * time.Second, 1}, {30 * time.Second, 2}} {
			w.after(at.wait)
			s, err := w.loop.Status(w.Context())
			if err != nil || s.Audits != at.audits {
				w.Errorf("after %s more: %d audits, want %d; error %v", at.wait, s.Audits, at.audits, err)
			}
		}
	})
}

// Once a second the mode is asked for signs of a loss, which is repaired at once; where there
// may be more, an audit does not wait for its time.
func TestSamples(t *testing.T) {
	for _, tt := range []struct {
		name    string
		sampled dataplane.Sampled
		err     error
		applied bool
		audits  uint64
	}{
		{name: "nothing lost"},
		{name: "some rows", sampled: dataplane.Sampled{Drift: dataplane.Drift{"members": 3}}, applied: true},
		{name: "perhaps more", sampled: dataplane.Sampled{Drift: dataplane.Drift{"servers": 1}, Doubt: true}, applied: true, audits: 1},
		{name: "unread", err: errors.New("busy")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMode()
			run(t, m, func(w *world) {
				w.SetState(model.FromFile, source.Complete)
				w.after(5 * time.Second)
				before := 0
				m.locked(func() {
					if m.samples < 4 || m.samples > 5 {
						w.Errorf("%d samples in 5 s", m.samples)
					}
					m.sampled, m.sampleErr, before = tt.sampled, tt.err, len(m.planned)
				})
				w.after(2 * time.Second)
				s, err := w.loop.Status(w.Context())
				applied := false
				m.locked(func() { applied = len(m.planned) > before })
				if err != nil || applied != tt.applied || s.Audits != tt.audits || s.Drifted != uint64(tt.sampled.Drift.Total()) {
					w.Errorf("applied %t, %d audits, %d rows drifted; error %v", applied, s.Audits, s.Drifted, err)
				}
			})
		})
	}
}

// Without audits there are no samples.
func TestNoSamplesWithoutAudits(t *testing.T) {
	m := newMode()
	m.periods.AuditPeriod = -1
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Minute)
		if m.samples != 0 {
			w.Errorf("%d samples", m.samples)
		}
	})
}

// A client that asks for an audit gets one that begins after the request, with what it found and
// what remains.
func TestAuditNow(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		if _, err := w.loop.AuditNow(w.Context()); err == nil {
			w.Error("an audit before there was anything to audit")
		}
		w.SetService(service("web", "10.96.0.1"))
		w.SetState(model.FromFile, source.Complete)
		w.after(time.Second)
		m.locked(func() { m.drift, m.auditTakes = dataplane.Drift{"servers": 2}, time.Second })
		r, err := w.loop.AuditNow(w.Context())
		want := []agent.AuditTable{{Table: "servers", Found: 2, Rows: []string{"row", "row"}}}
		if diff := cmp.Diff(want, r.Tables); err != nil || diff != "" || r.CostSeconds != 1 || r.LastError != "" {
			w.Errorf("%+v, error %v (-want +got):\n%s", r, err, diff)
		}
		m.locked(func() {
			m.drift, m.applyErr, m.auditErr = dataplane.Drift{"servers": 1}, errors.New("refused"), errors.New("unread")
		})
		r, err = w.loop.AuditNow(w.Context())
		want = []agent.AuditTable{{Table: "servers", Found: 1, Remaining: 1, Rows: []string{"row"}}}
		if diff := cmp.Diff(want, r.Tables); err != nil || diff != "" || r.LastError == "" || r.Unread != "unread" {
			w.Errorf("%+v, error %v (-want +got):\n%s", r, err, diff)
		}
		m.locked(func() { m.applyErr, m.auditErr = nil, nil })
		ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		defer cancel()
		if _, err := w.loop.AuditNow(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("who does not wait gets %v", err)
		}
	})
}

// A request during an audit waits for the next audit: rows that the current one has already read
// may have been lost since.
func TestAuditNowDuringAnAudit(t *testing.T) {
	m := newMode()
	m.auditTakes = time.Minute
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(45 * time.Second) // the first is at it
		asked := time.Now()
		r, err := w.loop.AuditNow(w.Context())
		if began := r.Ended.Add(-time.Duration(r.Seconds * float64(time.Second))); err != nil || began.Before(asked) {
			w.Errorf("asked at %s, told of an audit that began at %s; error %v", asked, began, err)
		}
	})
}

// An audit that cannot read the kernel is reported until one has read everything: nothing is
// pending meanwhile, so no other signal shows it.
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

// Remains of another mode that cannot be removed are reported until they are removed.
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
