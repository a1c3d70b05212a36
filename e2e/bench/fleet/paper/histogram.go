package paper

import (
	"fmt"
	"slices"
	"strings"
)

// widest is the length of the longest bar.
const widest = 40

// Bucket counts the samples from From up to To; the last bucket has those that are To, too.
type Bucket struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Count int     `json:"count"`
}

// Buckets are so many of one width, from the least sample to the largest. Samples that are all the same are one bucket; without samples
// there is none.
func Buckets(samples []float64, count int) []Bucket {
	if len(samples) == 0 {
		return nil
	}
	least, most := slices.Min(samples), slices.Max(samples)
	if count < 2 || least == most {
		return []Bucket{{least, most, len(samples)}}
	}
	width := (most - least) / float64(count)
	out := make([]Bucket, count)
	for i := range out {
		out[i] = Bucket{From: least + float64(i)*width, To: least + float64(i+1)*width}
	}
	for _, s := range samples {
		out[min(int((s-least)/width), count-1)].Count++
	}
	return out
}

// Histogram draws buckets, a line each.
func Histogram(buckets []Bucket, unit string) string {
	var out strings.Builder
	most := 1
	for _, b := range buckets {
		most = max(most, b.Count)
	}
	for _, b := range buckets {
		bar := strings.Repeat("#", (b.Count*widest+most-1)/most)
		fmt.Fprintln(&out, strings.TrimRight(fmt.Sprintf("%7.2f to %6.2f %s %4d %s", b.From, b.To, unit, b.Count, bar), " "))
	}
	return out.String()
}
