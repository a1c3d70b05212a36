package nftrules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
)

// drafts is the kernel of a Backend. A table of another version stays in force until its successor is
// complete. Until then all rows for it go to a draft, which readings show in its place. A draft begins
// with the sets of the old table. The mode writes jumps last, so the first base chain completes a
// draft. One transaction then deletes the old table, and creates the new one with all its rows.
type drafts struct {
	Kernel
	known bool // a reading has shown the versions of the tables
	of    map[nft.Family]*draft
}

func newDrafts(kernel Kernel) *drafts { return &drafts{Kernel: kernel, of: map[nft.Family]*draft{}} }

// Read reads our tables, with the draft in the place of one of another version.
func (d *drafts) Read(ctx context.Context) (nft.Ruleset, error) {
	r, err := d.Kernel.Read(ctx)
	if err != nil {
		return r, err
	}
	for _, f := range nft.Families() {
		version, exists := r.Tables[f]
		switch {
		case exists && version == nft.Version:
			delete(d.of, f)
		case exists && d.of[f] == nil:
			if d.of[f], err = d.begin(ctx, f, r); err != nil {
				delete(d.of, f)
				return nft.Ruleset{}, err
			}
		}
		if t := d.of[f]; t != nil {
			t.show(f, r)
		}
	}
	d.known = true
	return r, nil
}

// begin returns a draft with the sets of a table of another version that have the form of ours. Their
// entries say which virtual servers are ours. Of a table without a version nothing is taken: another
// program may have made it.
func (d *drafts) begin(ctx context.Context, f nft.Family, r nft.Ruleset) (*draft, error) {
	t := (&draft{}).with(nft.Pass{})
	for k, s := range r.Sets {
		if own, ok := setKey(k.Name); !ok || own != k || k.Family != f || s != purposes[k.Name].set || r.Tables[f] == 0 {
			continue
		}
		_, list, err := d.Kernel.Elements(ctx, k)
		if errors.Is(err, nft.ErrForeign) {
			continue
		} else if err != nil {
			return nil, err
		}
		t.sets[k] = s
		for _, e := range list {
			c := nft.ElementChange{Op: nft.Add, Key: k, Set: s, Element: e}
			t.members[memberOf(c)] = c
		}
	}
	return t, nil
}

// learn reads the versions of the tables, once.
func (d *drafts) learn(ctx context.Context) error {
	if d.known {
		return nil
	}
	_, err := d.Read(ctx)
	return err
}

// Elements reads a set.
func (d *drafts) Elements(ctx context.Context, k nft.Key) (nft.Set, []nft.Element, error) {
	if err := d.learn(ctx); err != nil {
		return nft.Set{}, nil, err
	}
	t := d.of[k.Family]
	if t == nil {
		return d.Kernel.Elements(ctx, k)
	}
	header, exists := t.sets[k]
	if !exists {
		return nft.Set{}, nil, fmt.Errorf("set %s of the table to come: %w", k, nft.ErrNotExist)
	}
	var list []nft.Element
	for m, c := range t.members {
		if m.set == k {
			list = append(list, c.Element)
		}
	}
	return header, list, nil
}

// Apply writes a pass. While there is a draft, each family is a transaction of its own.
func (d *drafts) Apply(ctx context.Context, p nft.Pass) (out nft.Outcome) {
	if err := d.learn(ctx); err != nil {
		return nft.Refuse(p, err)
	}
	if len(d.of) == 0 {
		return d.Kernel.Apply(ctx, p)
	}
	for _, f := range nft.Families() {
		switch s := shareOf(p, f); {
		case s.empty():
		case d.of[f] == nil:
			s.report(&out, p, d.Kernel.Apply(ctx, s.Pass))
		default:
			s.report(&out, p, d.write(ctx, f, s.Pass))
		}
	}
	return out
}

// write takes rows of one family into the draft, or replaces the table if a base chain is among them.
func (d *drafts) write(ctx context.Context, f nft.Family, p nft.Pass) nft.Outcome {
	before := d.of[f]
	completes := slices.ContainsFunc(p.Chains, func(c nft.ChainChange) bool { return c.Chain.Base != nft.Base{} })
	switch {
	case slices.ContainsFunc(p.Tables, func(c nft.TableChange) bool { return c.Op == nft.Delete }):
		delete(d.of, f)
		return d.Kernel.Apply(ctx, p)
	case completes && before.lacks != nil:
		err := fmt.Errorf("table %s %s of another version stays until its successor is complete: %w", f, nft.TableName, before.lacks)
		before.lacks = nil // the rows are written again before the next jumps
		return nft.Refuse(p, err)
	}
	next := before.with(p)
	var full nft.Pass
	var out nft.Outcome
	if completes {
		full = next.pass(f, maps.Values(next.members))
		out = d.Kernel.Apply(ctx, full)
	} else {
		full = next.pass(f, slices.Values(next.added(p)))
		out = d.Check(ctx, full)
	}
	if err := errors.Join(out.Tables...); err != nil { // the whole pass failed
		if completes { // the kernel may have replaced the table without an answer
			d.known = false
		} else {
			before.lacks = err
		}
		return nft.Refuse(p, err)
	}
	failed := failuresOf(full, out)
	result, others := failed.in(p), failed.outside(p)
	switch {
	case completes:
		delete(d.of, f)
	case others == nil:
		next.revert(failed, before)
		next.lacks = errors.Join(before.lacks, passing(result))
		d.of[f] = next
	}
	if others != nil {
		return nft.Refuse(p, others)
	}
	return result
}

// passing returns the errors of rows that the kernel may take another time.
func passing(out nft.Outcome) (passing error) {
	for _, err := range slices.Concat(out.Sets, out.Chains, out.Elements) {
		lasts := slices.ContainsFunc([]error{nft.ErrUnsupported, nft.ErrInvalid, nft.ErrNotExist, nft.ErrExist, nft.ErrOverlap},
			func(of error) bool { return errors.Is(err, of) })
		if err != nil && !lasts {
			passing = errors.Join(passing, err)
		}
	}
	return passing
}
