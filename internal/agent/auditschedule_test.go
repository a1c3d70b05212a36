package agent

import (
	"testing"
	"time"
)

func TestAuditSchedule(t *testing.T) {
	tests := map[string]struct {
		period, took time.Duration
		running      bool
		requested    bool
		never        bool
		want         time.Duration // after the audit ended
	}{
		"a quick one":               {period: time.Minute, took: time.Second, want: 59 * time.Second},
		"one that is not done":      {period: time.Minute, took: time.Second, running: true},
		"one that takes most of it": {period: time.Minute, took: 50 * time.Second, want: 50 * time.Second},
		"one that takes longer":     {period: time.Minute, took: time.Hour, want: time.Minute},
		"one that is requested":     {period: time.Minute, took: time.Second, requested: true},
		"no period":                 {period: -1, took: time.Second, never: true},
		"no period, requested":      {period: -1, took: time.Second, requested: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := auditSchedule{period: tt.period}
			s.begin(noon)
			now := noon.Add(tt.took)
			if !tt.running {
				s.end()
			}
			at, ok := s.next(now, tt.requested)
			if ok == tt.never || ok && !at.Equal(now.Add(tt.want)) {
				t.Errorf("next at %v, %t; want %s after the end, never %t", at, ok, tt.want, tt.never)
			}
		})
	}
}
