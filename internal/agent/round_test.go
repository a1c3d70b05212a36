package agent_test

import (
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
		{"short", 50 * time.Millisecond, 30 * time.Second, 119},
		{"long", time.Second, 5 * time.Minute, 12},
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
