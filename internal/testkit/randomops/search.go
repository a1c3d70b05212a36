package randomops

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Search is how walks are done and what becomes of those that fail.
type Search struct {
	// Open makes a fresh node; it may be called by several goroutines.
	Open func() (Node, error)
	// Patience is how long all may take to agree, and Again the same for runs that shorten
	// a walk that has failed. See scenario.Comparator.
	Patience, Again time.Duration
	// Tries is how often a shorter walk may pass before it counts as one that does not fail.
	Tries  int
	Budget Budget
	// Dir is where scenarios of what failed are written, and Repeat the command that
	// does a walk again.
	Dir    string
	Repeat func(Walk) string
	Count  *Count
}

// Try does a walk. The error of one that fails has the way to repeat it, and the file with
// what is left of it.
func (h *Search) Try(w Walk) error {
	failed := h.run(w, h.Patience)
	if failed == nil {
		return nil
	}
	var f *Failure
	if !errors.As(failed, &f) {
		return failed
	}
	all := len(w.Ops)
	fails := func(w Walk) bool {
		for range h.Tries {
			if h.run(w, h.Again) != nil {
				return true
			}
		}
		return false
	}
	w = Shrink(w.Cut(f), fails, h.Budget)
	comment := fmt.Sprintf("The rest of a shrunk random walk: seed %d, %d of %d operations. Repeat all of it with\n  %s\n%s",
		w.Seed, len(w.Ops), all, h.Repeat(w), strings.ReplaceAll(f.Error(), "\t", " "))
	path := filepath.Join(h.Dir, fmt.Sprintf("walk-%d.txtar", w.Seed))
	err := os.WriteFile(path, Script(w, comment), 0o644)
	return errors.Join(fmt.Errorf("seed %d: %w\nrepeat: %s\n%d operations are left, in %s\n%s", w.Seed, f, h.Repeat(w), len(w.Ops), path, f.Log), err)
}

// run does a walk on a fresh node.
func (h *Search) run(w Walk, patience time.Duration) error {
	node, err := h.Open()
	if err != nil {
		return err
	}
	if f := Run(node, w, patience, h.Count); f != nil {
		return f
	}
	return nil
}
