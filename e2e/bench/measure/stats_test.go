package measure_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i) // unsorted: 100 to 1
	}
	tests := []struct {
		name    string
		samples []float64
		p, want float64
	}{
		{"nothing", nil, 50, 0},
		{"one sample is all percentiles", []float64{7}, 99, 7},
		{"median of an even number is the lower one", []float64{4, 1, 3, 2}, 50, 2},
		{"p90 of a hundred", hundred, 90, 90},
		{"p99 of a hundred", hundred, 99, 99},
		{"p100", hundred, 100, 100},
		{"p0 is the least", hundred, 0, 1},
		{"p99 of fifty is the worst", hundred[:50], 99, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := measure.Percentile(tt.samples, tt.p); got != tt.want {
				t.Errorf("Percentile(%g) = %g, want %g", tt.p, got, tt.want)
			}
		})
	}
}

func TestOrderOfSamplesStays(t *testing.T) {
	samples := []float64{3, 1, 2}
	measure.Percentile(samples, 50)
	measure.Median(samples)
	if samples[0] != 3 || samples[1] != 1 || samples[2] != 2 {
		t.Errorf("samples are %v after they were summed up", samples)
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		samples []float64
		want    float64
	}{{nil, 0}, {[]float64{5}, 5}, {[]float64{9, 1, 4}, 4}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := measure.Median(tt.samples); got != tt.want {
			t.Errorf("Median(%v) = %g, want %g", tt.samples, got, tt.want)
		}
	}
}

func TestHalves(t *testing.T) {
	tests := []struct {
		name    string
		samples []float64
		want    float64
	}{
		{"too few", []float64{1}, 0},
		{"steady", []float64{2, 2, 2, 2}, 0},
		{"slower later", []float64{2, 2, 3, 3}, 0.5},
		{"faster later is noise as well", []float64{3, 3, 2, 2}, 0.5},
		{"the odd one belongs to neither", []float64{2, 2, 100, 3, 3}, 0.5},
		{"one outlier is not noise", []float64{2, 2, 90, 2, 2, 2}, 0},
		{"zero", []float64{0, 0, 1, 1}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := measure.Halves(tt.samples); got != tt.want {
				t.Errorf("Halves(%v) = %g, want %g", tt.samples, got, tt.want)
			}
		})
	}
}
