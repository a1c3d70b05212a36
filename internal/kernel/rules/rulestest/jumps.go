package rulestest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// WriteJumps does what rules.Handle does: a jump that is there stays where
// it is, a new one goes on top, behind others or to the end; others to the same target are
// removed.
func (f *Fake) WriteJumps(ctx context.Context, changes []rules.JumpChange) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([]error, len(changes))
	stop := f.Plan.begin(ctx, CallWriteJumps)
	for i, c := range changes {
		err := stop
		if err == nil {
			err = f.writeJump(c)
		}
		if err != nil {
			errs[i] = fmt.Errorf("%s jump %s: %w", c.Op, c.Key, err)
		}
	}
	return f.settle(errs)
}

func (f *Fake) writeJump(c rules.JumpChange) error {
	target := rules.ChainKey{Family: c.Key.Family, Table: c.Key.Table, Name: c.Key.Target}
	if err := cmp.Or(f.refuse(target), f.Plan.failJump(c.Key)); err != nil {
		return err
	}
	t := f.at(c.Key.Family, c.Key.Table)
	if t == nil || !slices.Contains(t.builtin, c.Key.Hook) {
		return fmt.Errorf("no such hook: %w", rules.ErrUnsupported)
	}
	f.counters.Jump++ // the listing of the hook
	rule := rules.Canonical(c.Key.Family, c.Jump.Rule(c.Key.Target))
	if c.Op == rules.Delete {
		if c.Exact {
			t.chains[c.Key.Hook] = slices.DeleteFunc(t.chains[c.Key.Hook], func(r string) bool { return r == rule })
		} else {
			f.dropJumps(t, c.Key, "")
		}
		return nil
	}
	err := cmp.Or(checkRule(c.Key.Family, c.Key.Table, rule, t.has), checkLinks(c.Key.Hook, rule))
	if err != nil {
		return err
	}
	if !slices.Contains(t.chains[c.Key.Hook], rule) {
		f.counters.Jump++
		t.chains[c.Key.Hook] = slices.Insert(t.chains[c.Key.Hook], place(t.chains[c.Key.Hook], c), rule)
	}
	f.dropJumps(t, c.Key, rule)
	return nil
}

// place is where a jump that is missing goes among the rules of its hook.
func place(hook []string, c rules.JumpChange) int {
	if c.Last {
		return len(hook)
	}
	at := 0
	for i, rule := range hook {
		if slices.ContainsFunc(c.Behind, func(target string) bool { return endsIn(rule, target) }) {
			at = i + 1
		}
	}
	return at
}

// dropJumps removes the jumps of the key except one that equals keep: the
// last of them, since the tools delete the first that fits.
func (f *Fake) dropJumps(t *table, key rules.JumpKey, keep string) {
	var out []string
	kept := false
	for _, r := range slices.Backward(t.chains[key.Hook]) {
		if endsIn(r, key.Target) && (r != keep || kept) {
			f.counters.Jump++
			continue
		}
		kept = kept || r == keep
		out = append(out, r)
	}
	slices.Reverse(out)
	t.chains[key.Hook] = out
}
