package randomops

import (
	"slices"
	"time"
)

// Budget bounds a shrinking: by the number of runs, and in time.
type Budget struct {
	Runs int
	Time time.Duration
}

// Shrink takes as much out of a walk as it can while the walk fails: foreign rows, and then
// operations, halves first and single ones last. The function fails must depend only on the walk
// itself; if the result also depends on chance, it should try more than once.
func Shrink(w Walk, fails func(Walk) bool, b Budget) Walk {
	s := shrinker{fails: fails, left: b.Runs, until: time.Now().Add(b.Time)}
	w.Ops = w.feasible()
	if bare := w; w.Foreign {
		bare.Foreign = false
		if s.still(bare) {
			w = bare
		}
	}
	for size := len(w.Ops) / 2; size > 0; {
		before := len(w.Ops)
		w = s.without(w, size)
		if size > 1 || len(w.Ops) == before {
			size /= 2 // single operations until none can go
		}
	}
	return w
}

type shrinker struct {
	fails func(Walk) bool
	left  int
	until time.Time
}

// still reports whether a candidate fails; without budget it reports false.
func (s *shrinker) still(w Walk) bool {
	if s.left <= 0 || time.Now().After(s.until) {
		return false
	}
	s.left--
	return s.fails(w)
}

// without tries to do without each run of so many operations. The last one stays: a quiet
// point is where a failure shows.
func (s *shrinker) without(w Walk, size int) Walk {
	for from := 0; from < len(w.Ops)-1; {
		shorter := w
		shorter.Ops = slices.Delete(slices.Clone(w.Ops), from, min(from+size, len(w.Ops)-1))
		if s.still(shorter) {
			w = shorter
		} else {
			from += size
		}
	}
	return w
}

// Cut ends a walk with the operation at which it failed, and a quiet point.
func (w Walk) Cut(f *Failure) Walk {
	w.Ops = slices.Clone(w.feasible()[:f.At+1])
	if n := len(w.Ops); n == 0 || w.Ops[n-1].Verb != Quiet {
		w.Ops = append(w.Ops, Operation{Verb: Quiet})
	}
	return w
}
