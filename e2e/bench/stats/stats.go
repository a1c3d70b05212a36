// Package stats sums up samples of a measurement: percentiles, and how far the samples agree with themselves.
//
// It knows numbers only, in whatever unit they come.
package stats

import (
	"math"
	"slices"
)

// Percentile is the least sample that at least p percent of all are not above (the nearest rank), so it is one that was measured. It is 0
// without samples.
func Percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median is the middle sample, the mean of the two in the middle where there is no middle; 0 without samples.
func Median(samples []float64) float64 {
	n := len(samples)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Spread is how much larger the largest sample is than the smallest, as a share of the smallest: 0.25 is 25 %. It is 0 for fewer than
// two samples and where the smallest is not above 0, for then no share of it means anything.
func Spread(samples ...float64) float64 {
	if len(samples) < 2 {
		return 0
	}
	least, most := slices.Min(samples), slices.Max(samples)
	if least <= 0 {
		return 0
	}
	return most/least - 1
}

// Growth is how many times the median of the first half that of the second half is, as Halves counts halves; 0 where there is none.
func Growth(samples []float64) float64 {
	half := len(samples) / 2
	if first := Median(samples[:half]); first > 0 {
		return Median(samples[len(samples)-half:]) / first
	}
	return 0
}

// Halves is the Spread between the medians of the first and the second half of the samples, in the order in which they were taken: what a
// machine that became slower, or a backlog that grew, does to them. An odd sample in the middle belongs to neither half.
func Halves(samples []float64) float64 {
	half := len(samples) / 2
	if half == 0 {
		return 0
	}
	return Spread(Median(samples[:half]), Median(samples[len(samples)-half:]))
}
