package measure

import (
	"math"
	"slices"
)

// Percentile is the least sample that at least p percent of all samples do not exceed (the nearest rank), so it was measured. It is 0
// without samples.
func Percentile[T ~float64](samples []T, p float64) T {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median is the middle sample, or the mean of the two in the middle; 0 without samples.
func Median[T ~float64](samples []T) T {
	n := len(samples)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Spread is how much larger the largest sample is than the smallest, as a share of the smallest: 0.25 is 25 %. It is 0 for fewer than
// two samples and where the smallest is not above 0.
func Spread[T ~float64](samples ...T) float64 {
	if len(samples) < 2 {
		return 0
	}
	least, most := slices.Min(samples), slices.Max(samples)
	if least <= 0 {
		return 0
	}
	return float64(most/least) - 1
}

// Halves is the Spread between the medians of the first and the second half of the samples: a machine that becomes slower, or a backlog
// that grows, raises it. An odd sample in the middle belongs to neither half.
func Halves[T ~float64](samples []T) float64 {
	half := len(samples) / 2
	if half == 0 {
		return 0
	}
	return Spread(Median(samples[:half]), Median(samples[len(samples)-half:]))
}
