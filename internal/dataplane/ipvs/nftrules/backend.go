package nftrules

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Kernel is the part of kernel/nft that this package uses.
type Kernel interface {
	Read(ctx context.Context) (nft.Ruleset, error)
	Elements(ctx context.Context, k nft.Key) (nft.Set, []nft.Element, error)
	Apply(ctx context.Context, p nft.Pass) nft.Outcome
	Check(ctx context.Context, p nft.Pass) nft.Outcome
	Generation(ctx context.Context) (uint32, error)
}

// Backend is the state that rules and sets share. One goroutine uses it.
type Backend struct {
	kernel *drafts
	counts counts
	listed listed
	known  bool               // a reading has shown which sets there are
	ranges map[string]*ranges // by the name of the set
	spoilt map[string]bool    // sets with elements that this package does not write
}

// New returns a backend that has read nothing.
func New(kernel Kernel) *Backend {
	return &Backend{kernel: newDrafts(kernel), counts: counts{of: map[string]int{}}, listed: listed{sets: map[string]bool{}}, ranges: map[string]*ranges{}, spoilt: map[string]bool{}}
}

// Rules returns the chains and jumps.
func (b *Backend) Rules() Rules { return Rules{b} }

// Sets returns the sets and their entries.
func (b *Backend) Sets() Sets { return Sets{b} }

// Remove deletes both tables. It is for what comes after this backend.
func Remove(ctx context.Context, kernel Kernel) error {
	var p nft.Pass
	for _, f := range nft.Families() {
		p.Tables = append(p.Tables, nft.TableChange{Op: nft.Delete, Family: f})
	}
	return kernel.Apply(ctx, p).Err()
}

// Exists reports whether one of our tables exists.
func Exists(ctx context.Context, kernel Kernel) (bool, error) {
	r, err := kernel.Read(ctx)
	return len(r.Tables) > 0, err
}

// ruleset reads our tables. Sets that are gone have no count any more, and new ones have one to be found out.
func (b *Backend) ruleset(ctx context.Context) (nft.Ruleset, error) {
	r, err := b.kernel.Read(ctx)
	if err != nil {
		return r, err
	}
	maps.DeleteFunc(b.counts.of, func(name string, _ int) bool {
		k, _ := setKey(name)
		_, there := r.Sets[k]
		return !there
	})
	for k := range r.Sets {
		if key, ok := setKey(k.Name); ok && key == k {
			b.counts.of[k.Name] += 0
		}
	}
	b.known = true
	return r, nil
}

// apply writes a pass, with the tables that it needs.
func (b *Backend) apply(ctx context.Context, p nft.Pass) nft.Outcome {
	if len(p.Tables)+len(p.Sets)+len(p.Chains)+len(p.Elements) == 0 {
		return nft.Outcome{}
	}
	for _, f := range nft.Families() {
		if adds(p, f) {
			p.Tables = append(p.Tables, nft.TableChange{Op: nft.Add, Family: f})
		}
	}
	before, unknown := b.kernel.Generation(ctx)
	out := b.kernel.Apply(ctx, p)
	after, err := b.kernel.Generation(ctx)
	err = errors.Join(unknown, err, out.Err())
	b.counts.wrote(before, after, err)
	b.listed.wrote(before, after, err)
	return out
}

// adds reports whether a pass adds something to the table of a family.
func adds(p nft.Pass, f nft.Family) bool {
	return slices.ContainsFunc(p.Sets, func(c nft.SetChange) bool { return c.Key.Family == f && c.Op != nft.Delete }) ||
		slices.ContainsFunc(p.Chains, func(c nft.ChainChange) bool { return c.Key.Family == f && c.Op != nft.Delete })
}

// collect deletes tables that have become empty. The next deletion finds a table that stays.
func (b *Backend) collect(ctx context.Context) {
	r, err := b.ruleset(ctx)
	if err != nil {
		return
	}
	var p nft.Pass
	for f := range r.Tables {
		used := func(k nft.Key) bool { return k.Family == f }
		if !anyKey(r.Chains, used) && !anyKey(r.Sets, used) {
			p.Tables = append(p.Tables, nft.TableChange{Op: nft.Delete, Family: f})
		}
	}
	if len(p.Tables) > 0 {
		b.apply(ctx, p)
	}
}

func anyKey[V any](m map[nft.Key]V, is func(nft.Key) bool) bool {
	for k := range m {
		if is(k) {
			return true
		}
	}
	return false
}

// stretch is the time in which only this process writes to nftables.
type stretch struct {
	// generation is that of the kernel after the last write of the stretch; 0 is no stretch.
	generation uint32
}

// wrote follows a write of ours: the stretch goes on if there was none of another program meanwhile.
func (s *stretch) wrote(before, after uint32, err error) {
	if err != nil || before != s.generation || after != before && after != before+1 {
		s.generation = 0
		return
	}
	s.generation = after
}

// lasts reports whether no other program has written since the stretch began.
func (s *stretch) lasts(generation uint32) bool { return generation != 0 && generation == s.generation }

// counts are how many entries each set has, as far as this process knows. The kernel does not count
// them, so a full reading is due where another program has written. They are right during the stretch.
type counts struct {
	of map[string]int
	stretch
	// notBefore bounds the share of time that full readings take, and vain counts those since one
	// found another count.
	notBefore time.Time
	vain      int
}

// listed has the sets whose entries were listed during the stretch, or that were made in it.
type listed struct {
	sets map[string]bool
	stretch
}

// begin begins another stretch if another program has written.
func (l *listed) begin(generation uint32) {
	if !l.lasts(generation) {
		clear(l.sets)
		l.generation = generation
	}
}

// maxRest is how many times its own duration passes after a full reading, at most. It doubles with
// each one that finds the counts as they were.
const maxRest = 16

// rested sets when the next full reading may begin.
func (c *counts) rested(took time.Duration, same bool) {
	if !same {
		c.vain = 0
	}
	c.notBefore = time.Now().Add(time.Duration(min(1<<min(c.vain, 8), maxRest)) * took)
	c.vain++
}

// known is an error of nftables that also matches the sentinel of another package.
type known struct {
	error
	as error
}

// Is makes errors.Is find the sentinel.
func (k known) Is(target error) bool { return target == k.as }

// Unwrap returns the error of nftables.
func (k known) Unwrap() error { return k.error }

// translated returns an error that matches what callers of another package test for.
func translated(err error, sentinels map[error]error) error {
	for of, as := range sentinels {
		if errors.Is(err, of) {
			return known{err, as}
		}
	}
	return err
}

// ruleErrors are the sentinels of kernel/rules; the others are the same in all packages.
var ruleErrors = map[error]error{nft.ErrUnsupported: rules.ErrUnsupported, nft.ErrInvalid: rules.ErrUnsupported}

func ruleError(err error) error { return translated(err, ruleErrors) }

// all returns one error for each of n rows.
func all(err error, n int) []error { return slices.Repeat([]error{err}, n) }
