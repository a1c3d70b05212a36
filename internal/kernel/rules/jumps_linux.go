package rules

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
)

// WriteJumps converges jumps in the given order. A jump that is there,
// anywhere in its hook, is neither moved nor doubled; a missing one becomes
// the first rule, so of several adds the last comes out on top; or it goes
// behind others with [JumpChange.Behind], to the end with [JumpChange.Last]. Jumps to the same target with other
// arguments are removed after the new one is in.
// The result is nil when all is applied, else has one entry a change.
func (h *Handle) WriteJumps(ctx context.Context, changes []JumpChange) []error {
	errs := make([]error, len(changes))
	var stop error
	for i, c := range changes {
		err := stop
		if err == nil {
			err = h.writeJump(ctx, c)
		}
		if err != nil {
			errs[i] = fmt.Errorf("%s jump %s: %w", c.Op, c.Key, err)
		}
		if errors.Is(err, ErrBusy) || ctx.Err() != nil {
			stop = err // the rest would wait for the same lock, one after the other
		}
	}
	return h.settle(errs)
}

func (h *Handle) writeJump(ctx context.Context, c JumpChange) error {
	if err := h.refuse(ChainKey{Family: c.Key.Family, Table: c.Key.Table, Name: c.Key.Target}); err != nil {
		return err
	}
	j := jumpWriter{h: h, ipt: h.per[c.Key.Family].ipt, key: c.Key}
	present, at, err := j.list(ctx, c.Behind)
	if err != nil {
		return err
	}
	keep := -1
	if c.Op != Delete {
		if keep, err = j.ensure(ctx, present, c, at); err != nil {
			return err
		}
	}
	for i, jump := range present {
		if i == keep || c.spares(jump) {
			continue
		}
		if err := j.delete(ctx, jump); err != nil {
			return err
		}
	}
	return nil
}

// jumpWriter speaks to go-iptables about one key.
type jumpWriter struct {
	h   *Handle
	ipt *iptables.IPTables
	key JumpKey
}

// list reads the jumps of the key out of its hook, in order, and the number that
// a rule behind the jumps to certain targets has. Comparing canonical text
// replaces the tools' own check, which is known to miss rules over quoting.
func (j jumpWriter) list(ctx context.Context, behind []string) (jumps []Jump, at int, err error) {
	var lines []string
	err = j.do(ctx, func() (err error) {
		lines, err = j.ipt.List(j.key.Table, j.key.Hook)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	hook := ChainKey{Family: j.key.Family, Table: j.key.Table, Name: j.key.Hook}
	number := 0
	for _, line := range lines {
		rule, ok := strings.CutPrefix(line, "-A "+j.key.Hook+" ")
		if !ok {
			continue
		}
		number++
		switch key, jump, ok := jumpOf(hook, rule); {
		case ok && key == j.key:
			jumps = append(jumps, jump)
		case ok && slices.Contains(behind, key.Target):
			at = number
		}
	}
	return jumps, at + 1, nil
}

// ensure returns the position in present of the jump to keep, -1 if it had
// to be written; then at is its number in the hook, unless it is to be the last.
func (j jumpWriter) ensure(ctx context.Context, present []Jump, c JumpChange, at int) (int, error) {
	rule := Canonical(j.key.Family, c.Jump.Rule(j.key.Target))
	for i, have := range present {
		if Canonical(j.key.Family, have.Rule(j.key.Target)) == rule {
			return i, nil
		}
	}
	return -1, j.do(ctx, func() error {
		if c.Last {
			return j.ipt.Append(j.key.Table, j.key.Hook, Words(rule)...)
		}
		return j.ipt.Insert(j.key.Table, j.key.Hook, at, Words(rule)...)
	})
}

func (j jumpWriter) delete(ctx context.Context, jump Jump) error {
	err := j.do(ctx, func() error {
		return j.ipt.Delete(j.key.Table, j.key.Hook, Words(jump.Rule(j.key.Target))...)
	})
	if errors.Is(err, ErrNotExist) {
		return nil // somebody else was faster
	}
	return err
}

// do runs one go-iptables call. The library keeps its process to itself, so
// the call is pinned to a thread and at the deadline the thread's children
// are killed; the lock wait alone is bounded by the library's own timeout.
func (j jumpWriter) do(ctx context.Context, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, j.h.opts.Timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	j.h.jumps.Add(1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stop := killChildrenAfter(ctx)
	defer stop()
	err := call()
	if err == nil {
		return nil
	}
	return jumpError(ctx, err)
}

func jumpError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("killed: %w", ctx.Err())
	}
	var e *iptables.Error
	if errors.As(err, &e) {
		if kind := classify(e.ExitStatus(), e.Error()); kind != nil {
			return fmt.Errorf("%w: %w", kind, err)
		}
	}
	return err
}
