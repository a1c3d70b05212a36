package drive

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Options say what to measure.
type Options struct {
	Services   []int
	Endpoints  int // of each Service
	Candidates []Candidate
	Parts      []string // of Parts; a start is always made
	// PartsOf and SamplesOf are for candidates by name that have their own.
	PartsOf   map[string][]string
	SamplesOf map[string]int
	Samples   int // of each kind of change, when the candidate is quiet
	// Limit is for each answer that is waited for, and for each part as a whole.
	Limit time.Duration
	// Churn is how long endpoints change at Rate a second.
	Churn time.Duration
	Rate  int
	// Settle is how long is waited, at most, for the machine to be quiet before and after a candidate.
	Settle time.Duration
	Out    string // directory of cells, and of what candidates print

	// SoakChanges are made at SoakRate a second, for no longer than Soak.
	SoakChanges, SoakRate int
	Soak                  time.Duration
	// Drift is how long is waited for the repair of what was changed by hand.
	Drift time.Duration

	KubeIPVS, KubeProxy string // programs
	Writer              string // the program that finds the limit; none if empty

	Log io.Writer // a line per step
}

// Soaking is a part that takes so long that it has to be asked for.
const Soaking = "soak"

// Parts that can be measured, but for Soaking, in the order in which they are.
func Parts() []string {
	return []string{"start", "idle", "endpoint", "service", "packets", "netlink", "roll", "churn", "limit", "start-netlink"}
}

// Validate joins all mistakes.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Services) == 0 || slices.Min(o.Services) < 1 || slices.Max(o.Services) > 20_000 {
		wrong("numbers of Services %v: want some, each 1 to 20,000", o.Services)
	}
	if o.Endpoints < 1 || o.Endpoints > 25 {
		wrong("%d endpoints of a Service: want 1 to 25", o.Endpoints)
	}
	if len(o.Candidates) == 0 {
		wrong("no candidates")
	}
	seen := map[string]bool{}
	for _, c := range o.Candidates {
		if seen[c.Name] {
			wrong("candidate %s is named twice", c.Name)
		}
		seen[c.Name] = true
	}
	errs = append(errs, o.validateOwn(seen))
	parts := slices.Concat(append(slices.Collect(maps.Values(o.PartsOf)), o.Parts)...)
	for _, p := range parts {
		if !slices.Contains(Parts(), p) && p != Soaking {
			wrong("part %q: want some of %v, %s", p, Parts(), Soaking)
		}
	}
	if o.Samples < 1 || o.Rate < 1 {
		wrong("%d samples, %d changes a second: want at least 1", o.Samples, o.Rate)
	}
	if slices.Contains(parts, Soaking) && (o.SoakChanges < 1 || o.SoakRate < 1 || o.Soak <= 0) {
		wrong("soak: %d changes, %d a second for %s: want more than 0", o.SoakChanges, o.SoakRate, o.Soak)
	}
	if o.Limit <= 0 || o.Churn <= 0 || o.Drift <= 0 {
		wrong("limit %s, churn %s, drift %s: want more than 0", o.Limit, o.Churn, o.Drift)
	}
	return errors.Join(errs...)
}

// validateOwn reports what somebody has for himself who is no candidate.
func (o *Options) validateOwn(candidates map[string]bool) error {
	var errs []error
	for name := range o.PartsOf {
		if !candidates[name] {
			errs = append(errs, fmt.Errorf("parts of %s: it is no candidate", name))
		}
	}
	for name, samples := range o.SamplesOf {
		if !candidates[name] || samples < 1 {
			errs = append(errs, fmt.Errorf("%d samples of %s: want at least 1, of a candidate", samples, name))
		}
	}
	return errors.Join(errs...)
}

// of are the options for one candidate.
func (o *Options) of(c Candidate) Options {
	own := *o
	if parts, ok := o.PartsOf[c.Name]; ok {
		own.Parts = parts
	}
	if samples, ok := o.SamplesOf[c.Name]; ok {
		own.Samples = samples
	}
	return own
}

func (o *Options) wants(part string) bool { return slices.Contains(o.Parts, part) }

func (o *Options) say(format string, args ...any) {
	fmt.Fprintf(o.Log, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
