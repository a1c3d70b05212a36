package run

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Options say what to measure.
type Options struct {
	Services   []int
	Endpoints  int // number of endpoints of each Service
	Candidates []Candidate
	Parts      []string // some of Parts; a start is always made
	Samples    int      // number of samples of each kind of change, when the candidate rests
	// Limit bounds each answer that is awaited, and each part as a whole.
	Limit time.Duration
	// Churn is how long endpoints change, Rate times a second.
	Churn time.Duration
	Rate  int
	// Settle bounds the wait for an idle machine before and after a candidate.
	Settle time.Duration
	Out    string // directory of results and of the candidates' output

	KubeIPVS, KubeProxy string // programs

	Log io.Writer // gets a line for each step
}

// Parts that can be measured, in their order.
func Parts() []string {
	return []string{"start", "idle", "endpoint", "service", "traffic", "roll", "churn"}
}

// Validate joins all mistakes.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Services) == 0 || slices.Min(o.Services) < 1 || slices.Max(o.Services) > 20_000 {
		wrong("numbers of Services %v: want some, each 1 to 20,000", o.Services)
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
	for _, p := range o.Parts {
		if !slices.Contains(Parts(), p) {
			wrong("part %q: want some of %v", p, Parts())
		}
	}
	if o.Samples < 1 {
		wrong("%d samples: want at least 1", o.Samples)
	}
	if o.Limit <= 0 {
		wrong("limit %s: want more than 0", o.Limit)
	}
	return errors.Join(errs...)
}

func (o *Options) wants(part string) bool { return slices.Contains(o.Parts, part) }

func (o *Options) say(format string, args ...any) {
	fmt.Fprintf(o.Log, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
