package rulestest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// WriteJumps acts like rules.Handle: an existing jump stays where it is, and a new one goes on top,
// behind others or to the end. Other jumps to the same target are removed.
func (f *Fake) WriteJumps(ctx context.Context, changes []rules.JumpChange) []error {
	f.change()
	defer f.mu.Unlock()
	errs := make([]error, len(changes))
	stop := f.Plan.begin(ctx, CallWriteJumps)
	for i, c := range changes {
		errs[i] = cmp.Or(stop, f.refuseJump(c.Key))
	}
	f.countJumps(good(changes, errs))
	for i, c := range changes {
		if errs[i] == nil {
			errs[i] = f.writeJump(c)
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s jump %s: %w", c.Op, c.Key, errs[i])
		}
	}
	return f.settle(errs)
}

// JumpsThere does what rules.Handle does.
func (f *Fake) JumpsThere(ctx context.Context, keys []rules.JumpKey) (missing []rules.JumpKey, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err = f.Plan.begin(ctx, CallJumpsThere)
	read := map[rules.ChainKey]bool{}
	for _, key := range keys {
		if err = cmp.Or(err, f.checkHook(key)); err != nil {
			return nil, fmt.Errorf("look for jump %s: %w", key, err)
		}
		read[hookOf(key)] = true
		hook := f.at(key.Family, key.Table).chains[key.Hook]
		hook = hook[:rules.Reach(key.Family, hook)]
		if !slices.ContainsFunc(hook, func(rule string) bool { return endsIn(rule, key.Target) }) {
			missing = append(missing, key)
		}
	}
	f.counters.Jump += uint64(len(read))
	return missing, err
}

func hookOf(k rules.JumpKey) rules.ChainKey {
	return rules.ChainKey{Family: k.Family, Table: k.Table, Name: k.Hook}
}

func (f *Fake) refuseJump(k rules.JumpKey) error {
	target := rules.ChainKey{Family: k.Family, Table: k.Table, Name: k.Target}
	return cmp.Or(f.refuse(target), f.Plan.failJump(k), f.checkHook(k))
}

func (f *Fake) checkHook(k rules.JumpKey) error {
	t := f.at(k.Family, k.Table)
	if t == nil || !slices.Contains(t.builtin, k.Hook) {
		return fmt.Errorf("no such hook: %w", rules.ErrUnsupported)
	}
	return nil
}

// countJumps counts the processes and their input as the Handle would.
func (f *Fake) countJumps(changes []rules.JumpChange) {
	hooks := map[rules.ChainKey][]string{}
	for _, c := range changes {
		hook := hookOf(c.Key)
		hooks[hook] = f.at(hook.Family, hook.Table).chains[hook.Name]
	}
	for _, family := range f.families {
		switch n := countOf(family, hooks); {
		case n > rules.FewHooks:
			f.counters.Save++
		default:
			f.counters.Jump += uint64(n)
		}
		if text := rules.JumpText(family, hooks, changes); text != "" {
			f.counters.Restore++
			f.counters.Bytes += uint64(len(text))
		}
	}
}

func countOf(family rules.Family, hooks map[rules.ChainKey][]string) int {
	n := 0
	for hook := range hooks {
		if hook.Family == family {
			n++
		}
	}
	return n
}

func (f *Fake) writeJump(c rules.JumpChange) error {
	t := f.at(c.Key.Family, c.Key.Table)
	rule := rules.Canonical(c.Key.Family, c.Jump.Rule(c.Key.Target))
	if c.Op == rules.Delete {
		if c.Exact {
			t.chains[c.Key.Hook] = slices.DeleteFunc(t.chains[c.Key.Hook], func(r string) bool { return r == rule })
		} else {
			t.dropJumps(c.Key, "")
		}
		return nil
	}
	err := cmp.Or(checkRule(c.Key.Family, c.Key.Table, rule, t.has), checkLinks(c.Key.Hook, rule))
	if err != nil {
		return err
	}
	reach := rules.Reach(c.Key.Family, t.chains[c.Key.Hook])
	if slices.ContainsFunc(t.chains[c.Key.Hook][reach:], func(r string) bool { return endsIn(r, c.Key.Target) }) {
		t.dropJumps(c.Key, "")
	}
	if !slices.Contains(t.chains[c.Key.Hook], rule) {
		t.chains[c.Key.Hook] = slices.Insert(t.chains[c.Key.Hook], place(t.chains[c.Key.Hook], c), rule)
	}
	t.dropJumps(c.Key, rule)
	return nil
}

// place is where a jump that is missing goes among the rules of its hook.
func place(hook []string, c rules.JumpChange) int {
	if c.Last {
		return rules.LastPlace(c.Key.Family, hook)
	}
	hook = hook[:rules.Reach(c.Key.Family, hook)]
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
func (t *table) dropJumps(key rules.JumpKey, keep string) {
	var out []string
	kept := false
	for _, r := range slices.Backward(t.chains[key.Hook]) {
		if endsIn(r, key.Target) && (r != keep || kept) {
			continue
		}
		kept = kept || r == keep
		out = append(out, r)
	}
	slices.Reverse(out)
	t.chains[key.Hook] = out
}
