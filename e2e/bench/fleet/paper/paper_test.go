package paper

import (
	"math"
	"strings"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

func TestFit(t *testing.T) {
	for name, c := range map[string]struct {
		points         []Point
		base, each, r2 float64
	}{
		"nothing":       {},
		"one":           {[]Point{{3, 7}}, 7, 0, 1},
		"a line":        {[]Point{{0, 5}, {10, 25}, {100, 205}}, 5, 2, 1},
		"level":         {[]Point{{1, 4}, {2, 4}}, 4, 0, 1},
		"the same x":    {[]Point{{2, 1}, {2, 3}}, 2, 0, 0},
		"beside a line": {[]Point{{0, 0}, {1, 2}, {2, 1}}, 0.5, 0.5, 0.25},
	} {
		if l := Fit(c.points); !near(l.Base, c.base) || !near(l.Each, c.each) || !near(l.R2, c.r2) || l.Points != len(c.points) {
			t.Errorf("%s: %+v, want %v + %v x, R2 %v", name, l, c.base, c.each, c.r2)
		}
	}
}

func TestScale(t *testing.T) {
	one := Cost{Services: 1000, ListBytes: 10, ListCPU: 2, EventBytes: 3, EventCPU: 8, ChangeCPU: 6, IdleBytes: 1}
	got := Scale([]Cost{one}, 5000)
	if !near(got.ListBytes, 50) || !near(got.ListCPU, 10) || got.EventBytes != 3 || got.EventCPU != 8 || got.ChangeCPU != 6 || got.IdleBytes != 1 {
		t.Errorf("from one measurement: %+v", got)
	}
	two := Cost{Services: 5000, ListBytes: 50, ListCPU: 6, EventBytes: 5, EventCPU: 4, ChangeCPU: 6, IdleBytes: 2}
	got = Scale([]Cost{one, two}, 10_000)
	if !near(got.ListBytes, 100) || !near(got.ListCPU, 11) || !near(got.EventBytes, 4) || !near(got.EventCPU, 6) || !near(got.IdleBytes, 1.5) {
		t.Errorf("from two measurements: %+v", got)
	}
	if got := Scale([]Cost{one, {Services: 2000}}, 10_000); got.ListBytes != 0 {
		t.Errorf("a line that falls: %+v", got)
	}
	if got := Scale(nil, 7); got != (Cost{Services: 7}) {
		t.Errorf("from nothing: %+v", got)
	}
}

func TestForecast(t *testing.T) {
	c := Cost{Services: 1000, ListBytes: 2e6, ListCPU: 0.05, EventBytes: 2000, EventCPU: 20e-6, ChangeCPU: 1e-3, IdleBytes: 10}
	f := c.At(5000, 50)
	want := Forecast{Services: 1000, Agents: 5000, Rate: 50, Events: 250_000, EventBytes: 5e8, EventCores: 5.05, IdleBytes: 50_000,
		StormBytes: 1e10, StormCPU: 250}
	if !near(f.EventCores, want.EventCores) {
		t.Errorf("%v cores, want %v", f.EventCores, want.EventCores)
	}
	f.EventCores = want.EventCores
	if f != want {
		t.Errorf("%+v, want %+v", f, want)
	}
}

func TestBuckets(t *testing.T) {
	got := Buckets([]float64{0, 1, 1, 9, 10}, 2)
	if len(got) != 2 || got[0] != (Bucket{0, 5, 3}) || got[1] != (Bucket{5, 10, 2}) {
		t.Errorf("%+v", got)
	}
	if got := Buckets([]float64{2, 2}, 5); len(got) != 1 || got[0].Count != 2 {
		t.Errorf("samples that are the same: %+v", got)
	}
	if got := Buckets(nil, 5); got != nil {
		t.Errorf("without samples: %+v", got)
	}
}

func TestHistogram(t *testing.T) {
	lines := strings.Split(Histogram([]Bucket{{0, 1, 1}, {1, 2, 0}, {2, 3, 400}}, "s"), "\n")
	if len(lines) != 4 || strings.Count(lines[0], "#") != 1 || strings.Contains(lines[1], "#") || strings.Count(lines[2], "#") != widest {
		t.Errorf("want a short, no and a full bar:\n%s", strings.Join(lines, "\n"))
	}
}
