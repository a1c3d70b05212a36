package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// Comparator compares three accounts of one node: the result of a fresh compile of all inputs,
// what the running agent wants, and what the kernel holds. It serves one node.
type Comparator struct {
	node    Driver
	foreign map[string][]string // by kind, in the form of Normal
	// normal keeps the last texts of each account and kind: most do not change.
	normal map[string]normalized
}

type normalized struct {
	text  string
	lines []string
}

// NewComparator returns one to whom all is ours.
func NewComparator(node Driver) *Comparator {
	return &Comparator{node: node, foreign: map[string][]string{}, normal: map[string]normalized{}}
}

// Foreign marks all rows that the kernel holds now as those of another program: they must not
// change.
func (j *Comparator) Foreign() error {
	for _, kind := range Kinds() {
		text, err := look(j.node, kind, "")
		if err != nil {
			return err
		}
		j.foreign[kind] = nil
		if text != "" {
			j.foreign[kind] = lines(text)
		}
	}
	return nil
}

// Agree waits until the agent, which was started so, has nothing left to do, and all
// accounts are the same. The error reports what is different when patience has ended, and the
// agent has looked for drift some times since; the latter counts for a while only.
func (j *Comparator) Agree(s Start, patience time.Duration) error {
	interval, deadline := j.node.Pace()
	began, rounds := time.Now(), uint64(0)
	for {
		asked := time.Now()
		want, err := j.node.Plan(s) // each time, for it follows what the agent keeps for the next one
		if err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		audits, err := j.agree(want)
		if err == nil {
			return nil
		}
		if rounds == 0 {
			rounds = audits + enoughAudits
		}
		waited := time.Since(began)
		if waited > max(patience, deadline) || waited > patience && audits >= rounds {
			return err
		}
		time.Sleep(max(interval, time.Since(asked)))
	}
}

// enoughAudits is how many rounds find all that there is to be found, and see it mended.
const enoughAudits = 10

// agree compares once. It returns how often the agent has looked for drift.
func (j *Comparator) agree(want map[string]string) (audits uint64, err error) {
	_, deadline := j.node.Pace()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	status, err := j.node.Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask the agent: %w", err)
	}
	problems := []error{Quiet(status)}
	rows, err := j.node.Rows(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask the agent what it wants: %w", err)
	}
	for _, kind := range Kinds() {
		problems = append(problems, j.agreeOn(kind, want[kind], rows[kind]))
	}
	return status.Audits, errors.Join(problems...)
}

// agreeOn compares the accounts of one kind.
func (j *Comparator) agreeOn(kind, want, wanted string) error {
	planned, err := j.lines("plan", kind, want)
	if err != nil {
		return err
	}
	rows, err := j.lines("agent", kind, wanted)
	if err != nil {
		return err
	}
	if !slices.Equal(planned, rows) {
		return fmt.Errorf("%s: the agent does not want what is planned (-plan +agent):\n%s", kind, cmp.Diff(planned, rows))
	}
	text, err := j.node.Text(kind)
	if err != nil {
		return err
	}
	held, err := j.lines("kernel", kind, text)
	if err != nil {
		return err
	}
	ours, gone := without(held, j.foreign[kind])
	if len(gone) > 0 {
		return fmt.Errorf("%s: rows of another program are gone:\n%s", kind, strings.Join(gone, "\n"))
	}
	if !slices.Equal(planned, ours) {
		return fmt.Errorf("%s: the kernel is not as planned (-plan +kernel):\n%s", kind, cmp.Diff(planned, ours))
	}
	return nil
}

// lines are those of a text in its normal form.
func (j *Comparator) lines(account, kind, text string) ([]string, error) {
	key := account + " " + kind
	if last, known := j.normal[key]; known && last.text == text {
		return last.lines, nil
	}
	normal, err := Normal(kind, text)
	if err != nil {
		return nil, fmt.Errorf("%s of the %s: %w", kind, account, err)
	}
	j.normal[key] = normalized{text, lines(normal)}
	return j.normal[key].lines, nil
}

// without takes lines out of others, each once, and tells which were not there.
func without(all, some []string) (rest, missing []string) {
	rest = slices.Clone(all)
	for _, line := range some {
		if i := slices.Index(rest, line); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		} else {
			missing = append(missing, line)
		}
	}
	if len(rest) == 0 {
		rest = lines("")
	}
	return rest, missing
}

// Quiet reports whether the agent has nothing left to write. Orphans stay while a file cannot be
// read.
func Quiet(status agent.Status) error {
	if !status.Ready || status.Failures > 0 {
		return fmt.Errorf("the agent is not done: %s", status.LastError)
	}
	for _, t := range status.Tables {
		left := t.Updates + t.Deletes
		if !status.Complete {
			left -= t.Orphans
		}
		if left > 0 {
			return fmt.Errorf("the agent has %d rows of %s left to write", left, t.Table)
		}
	}
	return nil
}
