package sysctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

// Apply gives every key its value and returns one result per key, in order. A key
// that is right is not written, so a read-only /proc/sys is no obstacle on a node
// that is set up already. The old value of a key is in the journal before the key
// changes for the first time. Nothing here is fatal: see Failure.
func (h *Handle) Apply(ctx context.Context, sysctls []Sysctl) []Result {
	book, note := h.openJournal()
	results := make([]Result, 0, len(sysctls))
	for _, s := range sysctls {
		r := h.applyOne(ctx, book, s)
		h.report(r)
		if r.Outcome == Changed && r.Note == "" {
			r.Note, note = note, ""
		}
		results = append(results, r)
	}
	return results
}

func (h *Handle) applyOne(ctx context.Context, book *journal, s Sysctl) Result {
	r := Result{Sysctl: s}
	if !h.readKey(ctx, &r) {
		return r
	}
	if r.Have == procfs.OneLine(s.Value) {
		r.Outcome = Right
		return r
	}
	// A node that forwards but cannot be put back is better than one that does
	// not forward, so a journal that cannot be written is only a note.
	undo, err := book.remember(s.Key, r.Have, procfs.OneLine(s.Value))
	if err != nil {
		r.Note = fmt.Sprintf("cleanup will not restore it: %v", err)
	}
	h.writeKey(ctx, &r, s.Value, Changed)
	if r.Outcome == Refused && h.untouched(ctx, r) {
		undo()
	}
	return r
}

// untouched reports that a refused key certainly has what it had. A value that the operator sets after
// the refusal is the operator's, so cleanup does not undo it.
// A write that was given up on may still arrive, so it does not count.
func (h *Handle) untouched(ctx context.Context, r Result) bool {
	again := Result{Sysctl: r.Sysctl}
	return !errors.Is(r.Err, context.DeadlineExceeded) && !errors.Is(r.Err, context.Canceled) &&
		h.readKey(ctx, &again) && again.Have == r.Have
}

// readKey fills in what the key has, or the outcome if that ends the matter.
// Only the kernel's "no such file" counts as missing.
func (h *Handle) readKey(ctx context.Context, r *Result) bool {
	var have string
	name, err := procfs.SysctlPath(r.Key)
	if err == nil {
		have, err = h.files.Get(ctx, name)
	}
	switch {
	case err == nil:
		r.Have = have
		return true
	case errors.Is(err, fs.ErrNotExist):
		r.Outcome = Missing
	default:
		r.Outcome, r.Err = Refused, fmt.Errorf("read sysctl %s: %w", r.Key, err)
	}
	return false
}

func (h *Handle) writeKey(ctx context.Context, r *Result, value string, done Outcome) {
	name, _ := procfs.SysctlPath(r.Key)
	err := h.files.Put(ctx, name, value, func(now string) bool { return now == procfs.OneLine(value) })
	if err != nil {
		r.Outcome, r.Err = Refused, fmt.Errorf("set sysctl %s from %q to %q: %w", r.Key, r.Have, value, err)
		return
	}
	r.Outcome = done
}

func (h *Handle) report(r Result) {
	if errors.Is(r.Err, context.Canceled) {
		return // told to stop: an interrupted call proves nothing about the kernel
	}
	defer h.remember(r)
	fields := []zap.Field{zap.Stringer("sysctl", r.Sysctl), zap.String("reason", r.Why)}
	if r.Note != "" {
		fields = append(fields, zap.String("note", r.Note))
	}
	switch r.Outcome {
	case Changed, Restored:
		h.log.Info("sysctl changed", append(fields, zap.String("was", r.Have))...)
	case Refused:
		if h.said[r.Key] == r.Err.Error() {
			return // it is tried again and again
		}
		h.log.Warn("sysctl refused", append(fields, zap.Stringer("policy", r.Policy), zap.Error(r.Err))...)
	default:
		if h.said[r.Key] == r.Outcome.String() {
			return // it is looked at each second
		}
		h.log.Debug("sysctl kept", append(fields, zap.Stringer("outcome", r.Outcome))...)
	}
}

// remember keeps how a key was found, or why it was refused, so that it is logged once.
func (h *Handle) remember(r Result) {
	h.said[r.Key] = r.Outcome.String()
	if r.Outcome == Refused {
		h.said[r.Key] = r.Err.Error()
	}
}
