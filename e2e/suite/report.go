package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// progressEvery is how often each running stage prints its line.
const progressEvery = 20 * time.Second

// A reporter prints what the stages do, for people who watch.
type reporter struct {
	out   io.Writer
	begun time.Time

	mu     sync.Mutex
	active []*recorder
	ended  []*recorder
}

// line needs the lock.
func (p *reporter) line(text string) {
	fmt.Fprintf(p.out, "%7s  %s\n", seconds(time.Since(p.begun).Round(time.Second)), text)
}

// start prints that a stage runs.
func (p *reporter) start(s *stage, r *recorder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active = append(p.active, r)
	p.line(fmt.Sprintf("%-11s begins: %s", s.name, s.about))
}

// end prints how a stage ended, with the output of what failed.
func (p *reporter) end(r *recorder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active = slices.DeleteFunc(p.active, func(other *recorder) bool { return other == r })
	p.ended = append(p.ended, r)
	text := fmt.Sprintf("%-11s %s in %s", r.stage, r.verdict, seconds(r.took))
	if r.totals.all() > 0 {
		text += fmt.Sprintf(": %d passed, %d failed, %d skipped", r.totals.passed, r.totals.failed, r.totals.skipped)
	} else if r.err != nil {
		text += ": " + firstLine(r.err.Error())
	}
	p.line(text)
	fmt.Fprint(p.out, r.shown)
	if r.verdict != failed {
		return
	}
	for _, res := range r.results {
		for _, line := range res.output {
			fmt.Fprintf(p.out, "         | %s\n", line)
		}
	}
	if r.err != nil {
		fmt.Fprintf(p.out, "         %s\n", r.err)
	}
	if r.totals.failed == 0 {
		for _, line := range logTail(r) {
			fmt.Fprintf(p.out, "         | %s\n", line)
		}
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// follow prints the line of every running stage until the context ends.
func (p *reporter) follow(ctx context.Context) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		for _, r := range p.active {
			p.line(r.progress())
		}
		p.mu.Unlock()
	}
}

// summary prints the table of stages, the skips by reason, the slowest tests, and what failed.
func (p *reporter) summary(stages []*stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out)
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "STAGE\tRESULT\tTIME\tPASSED\tFAILED\tSKIPPED\t")
	var sum counts
	for _, name := range append(stageNames(stages), repeats) {
		i := slices.IndexFunc(p.ended, func(r *recorder) bool { return r.stage == name })
		if i < 0 {
			continue
		}
		r := p.ended[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t\n", r.stage, r.verdict, seconds(r.took), r.totals)
		sum.passed, sum.failed, sum.skipped = sum.passed+r.totals.passed, sum.failed+r.totals.failed, sum.skipped+r.totals.skipped
	}
	fmt.Fprintf(table, "total\t%s\t%s\t%s\t\n", p.total(), seconds(time.Since(p.begun)), sum)
	_ = table.Flush()
	p.skips()
	p.slowest(10)
	p.unsteady()
	p.failures()
}

// String has the three columns of the table; a stage without tests has none.
func (c counts) String() string {
	if c.all() == 0 {
		return "-\t-\t-"
	}
	return fmt.Sprintf("%d\t%d\t%d", c.passed, c.failed, c.skipped)
}

func (p *reporter) total() verdict {
	if slices.ContainsFunc(p.ended, func(r *recorder) bool { return !r.verdict.good() }) {
		return failed
	}
	return passed
}

// skips prints how many tests were skipped for which reason, and the stages that this machine cannot run.
func (p *reporter) skips() {
	type key struct{ stage, reason string }
	count := map[key]int{}
	for _, r := range p.ended {
		if r.verdict == absent {
			fmt.Fprintf(p.out, "\nstage %s was %v\n", r.stage, r.err)
		}
		for _, res := range r.results {
			if res.outcome == skip {
				count[key{r.stage, skipReason(res)}]++
			}
		}
	}
	if len(count) == 0 {
		return
	}
	fmt.Fprintln(p.out, "\nskipped tests by reason:")
	keys := make([]key, 0, len(count))
	for k := range count {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(count[b], count[a]), cmp.Compare(a.reason, b.reason))
	})
	for _, k := range keys {
		fmt.Fprintf(p.out, "  %-11s %4d  %s\n", k.stage, count[k], k.reason)
	}
}

func skipReason(res result) string {
	switch {
	case strings.HasPrefix(res.reason, "WORK="):
		return "not for this driver, as the scenario file says"
	case res.reason == "":
		return "no reason printed: " + res.name
	default:
		return res.reason
	}
}

// slowest prints the n slowest tests. Subtests count on their own, and their parents do not.
func (p *reporter) slowest(n int) {
	var leaves []result
	for _, r := range p.ended {
		parents := map[string]bool{}
		for _, res := range r.results {
			if i := strings.LastIndex(res.name, "/"); i > strings.LastIndex(res.name, ":") {
				parents[res.name[:i]] = true
			}
		}
		for _, res := range r.results {
			if !parents[res.name] {
				leaves = append(leaves, res)
			}
		}
	}
	if len(leaves) == 0 {
		return
	}
	slices.SortStableFunc(leaves, func(a, b result) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintln(p.out, "\nslowest tests:")
	for _, res := range leaves[:min(n, len(leaves))] {
		fmt.Fprintf(p.out, "  %8s  %-11s %s\n", seconds(res.took), res.stage, res.name)
	}
}

// unsteady names what passed only when it ran once more, alone.
func (p *reporter) unsteady() {
	for _, r := range p.ended {
		if len(r.alone) == 0 {
			continue
		}
		fmt.Fprintf(p.out, "\nunsteady: %s: failed beside others and passed alone (bin/logs/%s.log): look why if it happens more than once\n", r.stage, r.stage)
		for _, name := range r.alone {
			fmt.Fprintf(p.out, "  %s\n", name)
		}
	}
}

// failures names what failed once more, where a reader looks first: at the end.
func (p *reporter) failures() {
	for _, r := range p.ended {
		if r.verdict.good() {
			continue
		}
		fmt.Fprintf(p.out, "\n%s: %s (bin/logs/%s.log)\n", r.verdict, r.stage, r.stage)
		for _, res := range r.results {
			if res.outcome == fail {
				fmt.Fprintf(p.out, "  %s\n", res.name)
			}
		}
		if r.err != nil {
			fmt.Fprintf(p.out, "  %s\n", firstLine(r.err.Error()))
		}
	}
}

// logTail returns the end of a stage's log.
func logTail(r *recorder) []string {
	text, err := os.ReadFile(filepath.Join(root, "bin/logs", r.stage+".log"))
	if err != nil {
		return []string{err.Error()}
	}
	return tail(strings.Split(strings.TrimSpace(string(text)), "\n"))
}
