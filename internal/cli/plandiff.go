package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/linediff"
)

// diff prints the rows that would change if other manifests were applied instead. Both sides are
// named, as diff -u names them; a note that holds for both is printed once.
func (p planner) diff(ctx context.Context, in input, against string) error {
	other := in
	other.manifests, other.cluster = against, false
	before, next := in.String(), other.String()
	if in.manifests == standardInput && against == standardInput {
		return fmt.Errorf("--diff-against: standard input is one side already")
	}
	var notes, otherNotes bytes.Buffer
	now, outcome, err := p.compile(ctx, in, &notes)
	if err != nil {
		return fmt.Errorf("%s: %w", before, err)
	}
	then, otherOutcome, err := p.compile(ctx, other, &otherNotes)
	p.tell(before, notes.String(), next, otherNotes.String())
	if err != nil {
		return fmt.Errorf("--diff-against: %w", err)
	}
	if n := outcome.badFiles + otherOutcome.badFiles; n > 0 {
		return asAnswer(fmt.Errorf("the sides cannot be compared: files that cannot be read: %d", n))
	}
	var text bytes.Buffer
	for _, kind := range p.show {
		if err := linediff.Write(&text, kind, oddLines(kind, p.c.Mode, now[kind], then[kind])); err != nil {
			return err
		}
	}
	if text.Len() > 0 {
		if _, err := fmt.Fprintf(p.out, "--- %s\n+++ %s\n%s", before, next, &text); err != nil {
			return err
		}
		return exitError{code: exitFound}
	}
	return p.judge(otherOutcome)
}

// String names an input as a side of a comparison.
func (in input) String() string {
	switch {
	case in.cluster && in.manifests == "":
		return "cluster"
	case in.manifests == standardInput:
		return "standard input"
	}
	return in.manifests
}

// tell prints the notes of two sides, those of both once.
func (p planner) tell(before, notes, next, otherNotes string) {
	mine, others := slices.Collect(strings.Lines(notes)), slices.Collect(strings.Lines(otherNotes))
	for _, n := range mine {
		side := before
		if slices.Contains(others, n) {
			side = "both"
		}
		fmt.Fprintf(p.notes, "%s: %s", side, n)
	}
	for _, n := range others {
		if !slices.Contains(mine, n) {
			fmt.Fprintf(p.notes, "%s: %s", next, n)
		}
	}
}
