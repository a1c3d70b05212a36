package rulestest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// WriteChains is Write without rules, a call of its own for the plan.
func (f *Fake) WriteChains(ctx context.Context, chains []rules.ChainChange) []error {
	f.change()
	defer f.mu.Unlock()
	errs, _ := f.write(ctx, CallWriteChains, chains, nil)
	return errs
}

// Write does what rules.Handle does: bad rows fail, the rest is applied: chains
// that are written, rules that come, rules that go, deletions of chains.
func (f *Fake) Write(ctx context.Context, chains []rules.ChainChange, changes []rules.RuleChange) (chainErrs, ruleErrs []error) {
	f.change()
	defer f.mu.Unlock()
	return f.write(ctx, CallWrite, chains, changes)
}

func (f *Fake) write(ctx context.Context, call Call, chains []rules.ChainChange, changes []rules.RuleChange) (chainErrs, ruleErrs []error) {
	chainErrs, ruleErrs = make([]error, len(chains)), make([]error, len(changes))
	if err := f.Plan.begin(ctx, call); err != nil {
		fill(chainErrs, err)
		fill(ruleErrs, err)
	} else {
		f.refuseRows(chains, chainErrs, changes, ruleErrs)
		f.countRestores(chains, chainErrs, changes, ruleErrs)
		f.failRows(chains, chainErrs, changes, ruleErrs)
		f.writeAll(chains, chainErrs)
		f.changeRules(changes, ruleErrs)
		f.deleteAll(chains, chainErrs)
	}
	for i, c := range chains {
		if chainErrs[i] != nil {
			chainErrs[i] = fmt.Errorf("%s chain %s: %w", c.Op, c.Key, chainErrs[i])
		}
	}
	for i, c := range changes {
		if ruleErrs[i] != nil {
			ruleErrs[i] = fmt.Errorf("%s rule of chain %s: %w", c.Op, c.Chain, ruleErrs[i])
		}
	}
	return f.settle(chainErrs), f.settle(ruleErrs)
}

func fill(errs []error, err error) {
	for i := range errs {
		errs[i] = err
	}
}

// refuseRows fails what the Handle hands to no tool.
func (f *Fake) refuseRows(chains []rules.ChainChange, chainErrs []error, changes []rules.RuleChange, ruleErrs []error) {
	whole := map[rules.ChainKey]bool{}
	for i, c := range chains {
		whole[c.Key] = true
		chainErrs[i] = f.refuse(c.Key)
	}
	for i, c := range changes {
		ruleErrs[i] = f.refuse(c.Chain)
		switch {
		case ruleErrs[i] != nil:
		case c.Op != rules.Add && c.Op != rules.Delete:
			ruleErrs[i] = fmt.Errorf("a rule is added or deleted: %w", rules.ErrUnsupported)
		case strings.ContainsAny(c.Rule, "\r\n"):
			ruleErrs[i] = fmt.Errorf("%q is not one rule: %w", c.Rule, rules.ErrUnsupported)
		case whole[c.Chain]:
			ruleErrs[i] = fmt.Errorf("chain is written whole in the same call: %w", rules.ErrExist)
		}
	}
}

// countRestores counts the processes and their input as the Handle would.
func (f *Fake) countRestores(chains []rules.ChainChange, chainErrs []error, changes []rules.RuleChange, ruleErrs []error) {
	chains, changes = good(chains, chainErrs), good(changes, ruleErrs)
	for _, family := range f.families {
		for _, text := range rules.RestoreTexts(f.Backend(), family, chains, changes) {
			f.counters.Restore++
			f.counters.Bytes += uint64(len(text))
		}
	}
}

// good are the rows without an error.
func good[T any](rows []T, errs []error) []T {
	var out []T
	for i, row := range rows {
		if errs[i] == nil {
			out = append(out, row)
		}
	}
	return out
}

func (f *Fake) failRows(chains []rules.ChainChange, chainErrs []error, changes []rules.RuleChange, ruleErrs []error) {
	for i, c := range chains {
		chainErrs[i] = cmp.Or(chainErrs[i], f.Plan.failChain(c.Key))
	}
	for i, c := range changes {
		ruleErrs[i] = cmp.Or(ruleErrs[i], f.Plan.failRule(c))
	}
}

// changeRules adds rules, then deletes some.
func (f *Fake) changeRules(changes []rules.RuleChange, errs []error) {
	for _, op := range []rules.Op{rules.Add, rules.Delete} {
		for i, c := range changes {
			if errs[i] == nil && c.Op == op {
				errs[i] = f.changeRule(c)
			}
		}
	}
}

func (f *Fake) changeRule(c rules.RuleChange) error {
	t := f.at(c.Chain.Family, c.Chain.Table)
	if t == nil {
		return fmt.Errorf("table %s: %w", c.Chain.Table, rules.ErrUnsupported)
	}
	rule, have := rules.Canonical(c.Chain.Family, c.Rule), t.chains[c.Chain.Name]
	if c.Op == rules.Delete {
		if i := slices.Index(have, rule); i >= 0 {
			t.chains[c.Chain.Name] = slices.Delete(have, i, i+1)
		}
		return nil
	}
	if !t.has(c.Chain.Name) {
		return fmt.Errorf("no such chain: %w", rules.ErrNotExist)
	}
	if err := checkRule(c.Chain.Family, c.Chain.Table, rule, t.has); err != nil {
		return err
	}
	t.chains[c.Chain.Name] = slices.Insert(have, 0, rule)
	return nil
}

func (f *Fake) settle(errs []error) []error {
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	f.counters.Rows += uint64(len(errs) - failed)
	if failed == 0 {
		return nil
	}
	return errs
}
