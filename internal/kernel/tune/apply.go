package tune

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"
)

// Apply gives every key its value and returns one result per key, in order. A key
// that is right is not written, so a read-only /proc/sys is no obstacle on a node
// that is set up already. The old value of a key is in the journal before the key
// changes for the first time. Nothing here is fatal: see Failure.
func (t *Tuner) Apply(ctx context.Context, sysctls []Sysctl) []SysctlResult {
	book, note := t.openJournal()
	results := make([]SysctlResult, 0, len(sysctls))
	for _, s := range sysctls {
		r := t.applyOne(ctx, book, s)
		t.report(r)
		if r.Outcome == Changed && r.Note == "" {
			r.Note, note = note, ""
		}
		results = append(results, r)
	}
	return results
}

func (t *Tuner) applyOne(ctx context.Context, book *journal, s Sysctl) SysctlResult {
	r := SysctlResult{Sysctl: s}
	if !t.readKey(ctx, &r) {
		return r
	}
	if r.Have == oneLine(s.Value) {
		r.Outcome = Right
		return r
	}
	// A node that forwards but cannot be put back is better than one that does
	// not forward, so a journal that cannot be written is only a note.
	undo, err := book.remember(s.Key, r.Have, oneLine(s.Value))
	if err != nil {
		r.Note = fmt.Sprintf("cleanup will not restore it: %v", err)
	}
	t.writeKey(ctx, &r, s.Value, Changed)
	if r.Outcome == Refused && t.untouched(ctx, r) {
		undo()
	}
	return r
}

// untouched reports that a refused key certainly has what it had. A value that is set later because
// of the logged remedy belongs to the operator, and cleanup does not undo it. A write that was
// given up on may still arrive, so it does not count.
func (t *Tuner) untouched(ctx context.Context, r SysctlResult) bool {
	again := SysctlResult{Sysctl: r.Sysctl}
	return !errors.Is(r.Err, context.DeadlineExceeded) && !errors.Is(r.Err, context.Canceled) &&
		t.readKey(ctx, &again) && again.Have == r.Have
}

// readKey fills in what the key has, or the outcome if that ends the matter.
// Only the kernel's "no such file" counts as missing.
func (t *Tuner) readKey(ctx context.Context, r *SysctlResult) bool {
	var have string
	name, err := keyPath(r.Key)
	if err == nil {
		have, err = t.get(ctx, name)
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

func (t *Tuner) writeKey(ctx context.Context, r *SysctlResult, value string, done Outcome) {
	name, _ := keyPath(r.Key)
	err := t.put(ctx, name, value, func(now string) bool { return now == oneLine(value) })
	if err != nil {
		r.Outcome, r.Err = Refused, fmt.Errorf("set sysctl %s from %q to %q: %w", r.Key, r.Have, value, err)
		return
	}
	r.Outcome = done
}

// get reads a kernel file under a deadline. No named result may stand in for have:
// a reader that was given up on can still write to it.
func (t *Tuner) get(ctx context.Context, name string) (string, error) {
	var have string
	err := bounded(ctx, func() (err error) { have, err = t.read(name); return err })
	if err != nil {
		return "", err
	}
	return have, nil
}

// put writes a kernel file under a deadline and reads it back, for some sandboxes
// accept a write and ignore it; taken says whether what is there now will do.
func (t *Tuner) put(ctx context.Context, name, value string, taken func(now string) bool) error {
	return bounded(ctx, func() error {
		if err := writeExisting(t.path(name), value); err != nil {
			return err
		}
		now, err := t.read(name)
		if err == nil && !taken(now) {
			err = fmt.Errorf("the kernel keeps %q", now)
		}
		return err
	})
}

// writeExisting writes to a file that is there; it never makes one.
func writeExisting(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// keyPath turns a key into a file name below the root: dots and slashes change
// places, as sysctl(8) does it. A key that leads out of /proc/sys is refused.
func keyPath(key string) (string, error) {
	name := strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, key)
	if !filepath.IsLocal(name) || name != filepath.Clean(name) {
		return "", fmt.Errorf("%q is not the key of a sysctl", key)
	}
	return filepath.Join("proc", "sys", name), nil
}

func (t *Tuner) report(r SysctlResult) {
	if errors.Is(r.Err, context.Canceled) {
		return // told to stop: what was interrupted says nothing of the kernel
	}
	defer t.remember(r)
	fields := []zap.Field{zap.Stringer("sysctl", r.Sysctl), zap.String("reason", r.Why)}
	if r.Note != "" {
		fields = append(fields, zap.String("note", r.Note))
	}
	switch r.Outcome {
	case Changed, Restored:
		t.log.Info("sysctl changed", append(fields, zap.String("was", r.Have))...)
	case Refused:
		if t.said[r.Key] == r.Err.Error() {
			return // it is tried again and again
		}
		t.log.Warn("sysctl refused", append(fields, zap.Stringer("policy", r.Policy), zap.Error(r.Err))...)
	default:
		if t.said[r.Key] == r.Outcome.String() {
			return // it is looked at each second
		}
		t.log.Debug("sysctl kept", append(fields, zap.Stringer("outcome", r.Outcome))...)
	}
}

// remember keeps how a key was found, or why it was refused, so that the log says it once.
func (t *Tuner) remember(r SysctlResult) {
	t.said[r.Key] = r.Outcome.String()
	if r.Outcome == Refused {
		t.said[r.Key] = r.Err.Error()
	}
}
