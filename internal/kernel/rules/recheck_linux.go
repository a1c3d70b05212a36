package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
)

// uncommitted leaves out the steps of tables that were applied before another
// one was refused: a rule must not be added twice. Where the refusal names no
// line the chains tell.
func (b *batch) uncommitted(ctx context.Context, steps []step, s script, err error) []step {
	if len(s.commits) < 2 {
		return steps
	}
	if line := lineOf(err); line > 0 {
		var out []step
		for _, step := range steps {
			if s.commits[b.chain(step.row).Table] >= line {
				out = append(out, step)
			}
		}
		return out
	}
	for key, have := range b.look(ctx, steps, func(ChainKey) bool { return true }) {
		for _, step := range steps {
			if b.isRule(step.row) && b.chain(step.row) == key && (have.count(b.text(step.row)) > 0) == (step.action == insert) {
				b.done[step.row] = true
			}
		}
	}
	return b.open(steps)
}

// leaveOutMissing reads each affected chain once if the refusal may be caused by missing rules: the
// tools refuse a whole batch for one missing rule that is to be deleted. It reports whether there
// is less to write now.
func (b *batch) leaveOutMissing(ctx context.Context, steps []step, guilty int, known bool, err error) bool {
	if known && !b.isRule(guilty) || !mayBeMissing(err) {
		return false
	}
	drops := map[ChainKey]bool{}
	for _, s := range steps {
		if s.action == drop || known && s.row == guilty {
			drops[b.chain(s.row)] = true
		}
	}
	found := b.look(ctx, steps, func(k ChainKey) bool { return drops[k] && !b.looked[k] })
	for key, have := range found {
		b.looked[key] = true
		b.compare(key, have, steps)
	}
	return len(b.open(steps)) < len(steps)
}

// mayBeMissing: legacy gives no reason for a rule or a chain that it misses.
func mayBeMissing(err error) bool {
	var e *toolError
	return errors.As(err, &e) && (e.kind == nil || errors.Is(e.kind, ErrNotExist))
}

// compare settles what cannot be written: rules to delete that are not there,
// and rules of a chain that is not there.
func (b *batch) compare(key ChainKey, have *contents, steps []step) {
	left := map[string]int{}
	for _, s := range steps {
		if !b.isRule(s.row) || b.chain(s.row) != key {
			continue
		}
		rule := b.text(s.row)
		switch {
		case s.action == insert && have == nil:
			b.errs[s.row], b.done[s.row] = fmt.Errorf("no such chain: %w", ErrNotExist), true
		case s.action == insert:
			left[rule]++ // comes before the deletions
		case have.count(rule)+left[rule] > 0:
			left[rule]--
		default:
			b.done[s.row] = true
		}
	}
}

// text is the rule of a row in canonical form.
func (b *batch) text(row int) string { return Canonical(b.family, b.rule(row).Rule) }

// contents counts the rules of a chain, nil for one that is not there.
type contents struct{ rules map[string]int }

func (c *contents) count(rule string) int {
	if c == nil {
		return 0
	}
	return c.rules[rule]
}

// look lists the chains among those of rules. If that fails, their rows fail: a chain that cannot
// be read is not taken as absent.
func (b *batch) look(ctx context.Context, steps []step, wanted func(ChainKey) bool) map[ChainKey]*contents {
	byTable := map[string]map[string]bool{}
	for _, s := range steps {
		if key := b.chain(s.row); b.isRule(s.row) && wanted(key) {
			if byTable[key.Table] == nil {
				byTable[key.Table] = map[string]bool{}
			}
			byTable[key.Table][key.Name] = true
		}
	}
	out := map[ChainKey]*contents{}
	for table, names := range byTable {
		found, err := b.h.readChains(ctx, b.family, table, sortedKeys(names, strings.Compare))
		for name := range names {
			key := ChainKey{b.family, table, name}
			if err == nil {
				out[key] = found[name]
				continue
			}
			for _, s := range steps {
				if b.isRule(s.row) && b.chain(s.row) == key {
					b.errs[s.row] = err
				}
			}
		}
	}
	return out
}

// maxChainReads is how many chains are listed one by one; more take one listing
// of their table.
const maxChainReads = 8

// readChains reads those of the chains that are there, in canonical form.
func (h *Handle) readChains(ctx context.Context, f Family, table string, names []string) (map[string]*contents, error) {
	if len(names) > maxChainReads {
		return h.readTable(ctx, f, table)
	}
	out := map[string]*contents{}
	for _, name := range names {
		rules, err := h.readChain(ctx, ChainKey{f, table, name})
		switch {
		case errors.Is(err, errIncompatible):
			return h.readTable(ctx, f, table)
		case errors.Is(err, ErrNotExist):
		case err != nil:
			return nil, err
		default:
			out[name] = countRules(f, rules)
		}
	}
	return out, nil
}

func countRules(f Family, rules []string) *contents {
	c := &contents{rules: make(map[string]int, len(rules))}
	for _, rule := range rules {
		c.rules[Canonical(f, rule)]++
	}
	return c
}

// errIncompatible is the error of the nft tools for a chain with content they cannot show, and in
// some versions (1.8.9) for a missing chain.
var errIncompatible = errors.New("incompatible, use 'nft' tool")

// readChain lists the rules of one chain, as printed.
func (h *Handle) readChain(ctx context.Context, k ChainKey) ([]string, error) {
	command := h.per[k.Family].command
	if err := h.free(command); err != nil {
		return nil, fmt.Errorf("list chain %s: %w", k, err)
	}
	h.jumps.Add(1)
	out, err := h.runLocked(ctx, h.opts.chainTimeout(h.backend), nil, command, waitArg(h.opts), "-t", k.Table, "-S", k.Name)
	if err != nil && strings.Contains(err.Error(), errIncompatible.Error()) {
		err = fmt.Errorf("%w: %w", errIncompatible, err)
	}
	if err != nil {
		return nil, fmt.Errorf("list chain %s: %w", k, err)
	}
	var rules []string
	for line := range strings.Lines(string(out)) {
		if rule, ok := strings.CutPrefix(trim(line)+" ", "-A "+k.Name+" "); ok {
			rules = append(rules, trim(rule))
		}
	}
	return rules, nil
}

// readTable reads all chains of a table.
func (h *Handle) readTable(ctx context.Context, f Family, table string) (map[string]*contents, error) {
	h.saves.Add(1)
	out, err := h.run(ctx, h.opts.listTimeout(), nil, h.per[f].save, "-t", table)
	if err != nil {
		return nil, fmt.Errorf("list table %s of family %s: %w", table, f, err)
	}
	if bytes.Contains(out, []byte("# Table `"+table+"' is "+errIncompatible.Error())) {
		return nil, fmt.Errorf("list table %s of family %s: %w", table, f, errIncompatible)
	}
	tables, err := ParseSave(bytes.NewReader(out))
	if err != nil {
		return nil, fmt.Errorf("list table %s of family %s: %w", table, f, err)
	}
	chains := map[string]*contents{}
	for _, t := range tables {
		for _, c := range t.Chains {
			if t.Name == table {
				chains[c.Name] = countRules(f, c.Rules)
			}
		}
	}
	return chains, nil
}
