package measure_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
)

func TestPercentileThatTheLimitEnded(t *testing.T) {
	s := measure.Summarize([]measure.Wait{{Seconds: 1}, {Seconds: 2}, {Seconds: 3}, {Seconds: 60, Over: true}})
	if s.Missed != 1 || len(s.Times) != 4 {
		t.Errorf("summary is %+v, want four samples, one of them missed", s)
	}
	for p, want := range map[float64]measure.Wait{50: {Seconds: 2}, 90: {Seconds: 60, Over: true}} {
		if got := s.Percentile(p); got != want {
			t.Errorf("p%g is %+v, want %+v", p, got, want)
		}
	}
}
