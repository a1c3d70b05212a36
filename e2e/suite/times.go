package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// unknownTime stands in for the duration of a test that has not run on this machine yet: such tests start early.
const unknownTime = time.Minute

// durations are how long units took when they last ran here, by "stage/unit".
type durations map[string]float64

// loadDurations reads the file; without one nothing is known, which costs nothing but a worse order.
func loadDurations(path string) durations {
	known := durations{}
	if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &known) != nil {
		return durations{}
	}
	return known
}

// of returns how long a unit took, or unknownTime.
func (d durations) of(stage, unit string) time.Duration {
	if secs, ok := d[stage+"/"+unit]; ok {
		return time.Duration(secs * float64(time.Second))
	}
	return unknownTime
}

func (d durations) set(stage, unit string, took time.Duration) {
	d[stage+"/"+unit] = took.Round(10 * time.Millisecond).Seconds()
}

// save replaces the file as a whole.
func (d durations) save(path string) error {
	text, err := json.MarshalIndent(d, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// slowestFirst returns the units in descending order of their last duration.
func (d durations) slowestFirst(stage string, units []string) []string {
	return slices.SortedStableFunc(slices.Values(units), func(a, b string) int {
		return cmp.Compare(d.of(stage, b), d.of(stage, a))
	})
}

// deal divides units into at most n groups of about the same duration: each unit goes to the group that has least so far, the slowest
// units first.
func (d durations) deal(stage string, units []string, n int) [][]string {
	groups := make([][]string, min(n, len(units)))
	loads := make([]time.Duration, len(groups))
	for _, unit := range d.slowestFirst(stage, units) {
		least := slices.Index(loads, slices.Min(loads))
		groups[least] = append(groups[least], unit)
		loads[least] += d.of(stage, unit)
	}
	return groups
}
