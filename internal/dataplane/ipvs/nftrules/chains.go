package nftrules

import (
	"context"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Rules has the methods of kernel/rules that ipvs mode uses.
type Rules struct{ b *Backend }

// Generation returns another number after each write of any process; 0 is unknown.
func (r Rules) Generation(ctx context.Context) uint64 {
	n, err := r.b.kernel.Generation(ctx)
	if err != nil {
		return 0
	}
	return uint64(n)
}

// List returns our chains, and the jumps of the base chains.
func (r Rules) List(ctx context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error) {
	found, err := r.b.ruleset(ctx)
	if err != nil {
		return nil, nil, ruleError(err)
	}
	chains, jumps := map[rules.ChainKey]rules.Chain{}, map[rules.JumpKey]rules.Jump{}
	for k, c := range found.Chains {
		key, ok := parseName(k)
		if !ok {
			continue
		}
		if c.Base != (nft.Base{}) {
			for _, j := range jumpsOf(key, c) {
				jumps[j.key] = j.value
			}
			continue
		}
		text, err := r.text(ctx, key, c)
		if err != nil {
			return nil, nil, ruleError(err)
		}
		chains[key] = rules.Chain{Rules: text}
	}
	return chains, jumps, nil
}

// Counted returns the rules of some chains that drop or refuse packets, with the number of packets. It
// reads all rules of our tables at once, so tables are not looked at.
func (r Rules) Counted(ctx context.Context, _ []string, wanted func(rules.ChainKey) bool) ([]rules.Counted, error) {
	found, err := r.b.kernel.Read(ctx)
	if err != nil {
		return nil, ruleError(err)
	}
	var out []rules.Counted
	for _, k := range slices.SortedFunc(maps.Keys(found.Chains), nft.Key.Compare) {
		key, ok := parseName(k)
		if !ok || !wanted(key) {
			continue
		}
		for _, rule := range found.Chains[k].Rules {
			if isCounted(rule) {
				out = append(out, rules.Counted{Chain: key, Rule: netfilter.NewLine(key.Family, raiseRule(key, rule)).String(), Packets: rule.Packets})
			}
		}
	}
	return out, nil
}

// text returns the rules of a chain as kernel/rules has them.
func (r Rules) text(ctx context.Context, k rules.ChainKey, c nft.Chain) (string, error) {
	var detours []nft.Element
	if hasDetours(k, c.Rules) {
		var err error
		if _, detours, err = r.b.kernel.Elements(ctx, chainKey(k)); err != nil {
			return "", err
		}
	}
	return raiseChain(k, c.Rules, detours).String(), nil
}

// WriteChains writes all chains in one transaction. A chain that cannot be written has its error, and
// the others are written.
func (r Rules) WriteChains(ctx context.Context, changes []rules.ChainChange) []error {
	found, err := r.b.ruleset(ctx)
	if err != nil {
		return all(ruleError(err), len(changes))
	}
	w := chainWriter{found: found}
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = w.change(i, c)
	}
	out := r.b.apply(ctx, w.pass)
	put := func(at []int, from []error) {
		for row, err := range from {
			if row < len(at) && err != nil && errs[at[row]] == nil {
				errs[at[row]] = ruleError(err)
			}
		}
	}
	put(w.chains, out.Chains)
	put(w.sets, out.Sets)
	put(w.elements, out.Elements)
	if slices.ContainsFunc(changes, func(c rules.ChainChange) bool { return c.Op == rules.Delete }) {
		r.b.collect(ctx)
	}
	return errs
}

// chainWriter collects the rows of changes of chains, and for each row the change it is of.
type chainWriter struct {
	found                  nft.Ruleset
	pass                   nft.Pass
	chains, sets, elements []int
}

func (w *chainWriter) change(i int, c rules.ChainChange) error {
	k := chainKey(c.Key)
	_, mapped := w.found.Sets[k]
	if c.Op == rules.Delete {
		w.chain(i, nft.ChainChange{Op: nft.Delete, Key: k})
		if mapped {
			w.set(i, nft.SetChange{Op: nft.Delete, Key: k, Set: detourMap})
		}
		return nil
	}
	low, err := lowerChain(c.Key, netfilter.ReadChain(c.Chain))
	if err != nil {
		return err
	}
	op := nft.Add
	if _, exists := w.found.Chains[k]; exists {
		op = nft.Update
	}
	w.chain(i, nft.ChainChange{Op: op, Key: k, Chain: nft.Chain{Rules: low.rules}})
	switch {
	case len(low.detours) > 0 && mapped:
		w.set(i, nft.SetChange{Op: nft.Update, Key: k, Set: detourMap})
	case len(low.detours) > 0:
		w.set(i, nft.SetChange{Op: nft.Add, Key: k, Set: detourMap})
	case mapped:
		w.set(i, nft.SetChange{Op: nft.Delete, Key: k, Set: detourMap})
	}
	for _, e := range low.detours {
		w.pass.Elements = append(w.pass.Elements, nft.ElementChange{Op: nft.Add, Key: k, Set: detourMap, Element: e})
		w.elements = append(w.elements, i)
	}
	return nil
}

func (w *chainWriter) chain(i int, c nft.ChainChange) {
	w.pass.Chains, w.chains = append(w.pass.Chains, c), append(w.chains, i)
}

func (w *chainWriter) set(i int, c nft.SetChange) {
	w.pass.Sets, w.sets = append(w.pass.Sets, c), append(w.sets, i)
}

// WriteJumps writes the base chains whose jumps change, all in one transaction.
func (r Rules) WriteJumps(ctx context.Context, changes []rules.JumpChange) []error {
	found, err := r.b.ruleset(ctx)
	if err != nil {
		return all(ruleError(err), len(changes))
	}
	errs := make([]error, len(changes))
	hooks := map[nft.Key]*jumpList{}
	for i, c := range changes {
		k := hookKey(c.Key)
		if hooks[k] == nil {
			if hooks[k], errs[i] = newJumpList(k, found); errs[i] != nil {
				delete(hooks, k)
				continue
			}
		}
		if errs[i] = hooks[k].change(c); errs[i] == nil {
			hooks[k].changes = append(hooks[k].changes, i)
		}
	}
	var wrong, pass nft.Pass
	keys := slices.SortedFunc(maps.Keys(hooks), nft.Key.Compare)
	for _, k := range keys {
		if hooks[k].otherBase {
			wrong.Chains = append(wrong.Chains, nft.ChainChange{Op: nft.Delete, Key: k})
		}
		pass.Chains = append(pass.Chains, hooks[k].row())
	}
	if len(wrong.Chains) > 0 { // the kernel cannot move a chain to another hook
		r.b.apply(ctx, wrong)
	}
	for row, err := range r.b.apply(ctx, pass).Chains {
		for _, i := range hooks[keys[row]].changes {
			errs[i] = ruleError(err)
		}
	}
	if slices.ContainsFunc(changes, func(c rules.JumpChange) bool { return c.Op == rules.Delete }) {
		r.b.collect(ctx)
	}
	return errs
}
