package rulestest

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Fake is an iptables in memory with the methods of rules.Handle. It may be
// used from several goroutines.
type Fake struct {
	// Plan is the faults to inject; change it between calls only.
	Plan Plan

	mu       sync.Mutex
	owned    func(rules.ChainKey) bool
	backend  rules.Backend
	families []rules.Family
	tables   map[tableKey]*table
	counters rules.Counters
	// writes counts what may have changed rules, from 1.
	writes uint64
}

type tableKey struct {
	family rules.Family
	name   string
}

// table keeps its chains by name, built-in ones included.
type table struct {
	builtin []string
	chains  map[string][]string
}

// New makes an empty node; opts counts for Families, Owned and Backend only, which
// is nft by default.
func New(opts rules.Options) *Fake {
	opts = opts.Defaults()
	f := &Fake{
		owned: opts.Owned, backend: cmp.Or(opts.Backend, rules.NFT),
		families: slices.Clone(opts.Families), tables: map[tableKey]*table{}, writes: 1,
	}
	slices.Sort(f.families)
	for _, family := range f.families {
		for name, hooks := range rules.Hooks() {
			t := &table{builtin: hooks, chains: map[string][]string{}}
			for _, hook := range hooks {
				t.chains[hook] = nil
			}
			f.tables[tableKey{family, name}] = t
		}
	}
	return f
}

// Backend is the one asked for.
func (f *Fake) Backend() rules.Backend { return f.backend }

// Families are those asked for.
func (f *Fake) Families() []rules.Family { return slices.Clone(f.families) }

// RandomFully is true for the families in use.
func (f *Fake) RandomFully(family rules.Family) bool { return slices.Contains(f.families, family) }

// Counters counts what the real Handle would launch when nothing fails.
func (f *Fake) Counters() rules.Counters {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counters
}

// Stamp does what rules.Handle does, but sees every change.
func (f *Fake) Stamp(family rules.Family, names ...string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var there []rules.SaveTable
	for _, name := range names {
		if t := f.at(family, name); t != nil && f.backend == rules.Legacy {
			there = append(there, rules.SaveTable{Name: name, Chains: t.save()})
		}
	}
	err := f.Plan.begin(context.Background(), CallStamp)
	if err == nil && there == nil {
		err = rules.ErrUnsupported
	}
	if err != nil {
		return 0, fmt.Errorf("stamp of tables %s %s: %w", family, names, err)
	}
	sum := fnv.New64a()
	_ = rules.PrintSave(sum, there) // a hash takes everything
	return sum.Sum64(), nil
}

// Generation is another one after each write, though the rules be as they were before; it is
// not known with legacy.
func (f *Fake) Generation(context.Context) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.backend == rules.Legacy {
		return 0
	}
	return f.writes
}

// change begins what may change rules. The caller unlocks.
func (f *Fake) change() {
	f.mu.Lock()
	f.writes++
}

// List returns our chains and jumps, less the rows the plan drops.
func (f *Fake) List(ctx context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.Plan.begin(ctx, CallList); err != nil {
		return nil, nil, fmt.Errorf("list chains: %w", err)
	}
	l := rules.NewListing(f.owned)
	for _, family := range f.families {
		f.counters.Save++
		tables := f.saveTables(family)
		for i, t := range tables {
			tables[i].Chains = slices.DeleteFunc(t.Chains, func(c rules.SaveChain) bool {
				key := rules.ChainKey{Family: family, Table: t.Name, Name: c.Name}
				if c.Builtin() || !f.owned(key) {
					return false
				}
				l.Chains[key] = rules.Chain{Rules: strings.Join(c.Rules, "\n")} // written in the form of the kernel
				return true
			})
		}
		l.Add(family, tables)
	}
	for k := range l.Chains {
		if f.Plan.DropChain != nil && f.Plan.DropChain(k) {
			delete(l.Chains, k)
		}
	}
	for k := range l.Jumps {
		if f.Plan.DropJump != nil && f.Plan.DropJump(k) {
			delete(l.Jumps, k)
		}
	}
	return l.Chains, l.Jumps, nil
}

// refuse guards families not in use and chains that are not ours.
func (f *Fake) refuse(k rules.ChainKey) error {
	if !slices.Contains(f.families, k.Family) {
		return fmt.Errorf("family %s is not in use: %w", k.Family.Table(), rules.ErrUnsupported)
	}
	if !f.owned(k) {
		return fmt.Errorf("chain is not ours: %w", rules.ErrUnsupported)
	}
	return nil
}

func (f *Fake) at(family rules.Family, name string) *table {
	return f.tables[tableKey{family, name}]
}

// String prints both families as iptables-save would, tables with content
// only, "# ip" or "# ip6" before each family.
func (f *Fake) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, family := range f.families {
		if tables := f.saveTables(family); len(tables) > 0 {
			fmt.Fprintf(&b, "# %s\n", family.Table())
			_ = rules.PrintSave(&b, tables) // a Builder does not fail
		}
	}
	return b.String()
}

// Save prints one family.
func (f *Fake) Save(family rules.Family) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	_ = rules.PrintSave(&b, f.saveTables(family)) // a Builder does not fail
	return b.String()
}

// Load does what iptables-restore --noflush does with save text: declared
// user chains are emptied, rules appended.
func (f *Fake) Load(family rules.Family, text string) error {
	tables, err := rules.ParseSave(strings.NewReader(text))
	if err != nil {
		return err
	}
	f.change()
	defer f.mu.Unlock()
	for _, t := range tables {
		at := f.at(family, t.Name)
		if at == nil {
			return fmt.Errorf("table %s: %w", t.Name, rules.ErrUnsupported)
		}
		for _, c := range t.Chains {
			at.load(family, c)
		}
	}
	return nil
}

func (t *table) load(family rules.Family, c rules.SaveChain) {
	if !c.Builtin() {
		t.chains[c.Name] = nil
	}
	for _, r := range c.Rules {
		t.chains[c.Name] = append(t.chains[c.Name], rules.Canonical(family, r))
	}
}

// Unload removes the first rule of any chain that is this one, as iptables -D does.
func (f *Fake) Unload(chain rules.ChainKey, rule string) error {
	f.change()
	defer f.mu.Unlock()
	if t := f.at(chain.Family, chain.Table); t != nil {
		if i := slices.Index(t.chains[chain.Name], rules.Canonical(chain.Family, rule)); i >= 0 {
			t.chains[chain.Name] = slices.Delete(t.chains[chain.Name], i, i+1)
			return nil
		}
	}
	return fmt.Errorf("rule %q of %s: %w", rule, chain, rules.ErrNotExist)
}

// Flush empties a chain, as "iptables -F" does: one that is not there stays away.
func (f *Fake) Flush(key rules.ChainKey) error {
	f.change()
	defer f.mu.Unlock()
	if t := f.at(key.Family, key.Table); t != nil {
		if _, there := t.chains[key.Name]; there {
			t.chains[key.Name] = nil
			return nil
		}
	}
	return fmt.Errorf("chain %s: %w", key, rules.ErrNotExist)
}

// Delete removes a chain and every rule that refers to it, as another program on the node might.
func (f *Fake) Delete(key rules.ChainKey) {
	f.change()
	defer f.mu.Unlock()
	t := f.at(key.Family, key.Table)
	for name, list := range t.chains {
		t.chains[name] = slices.DeleteFunc(list, func(r string) bool { return endsIn(r, key.Name) })
	}
	delete(t.chains, key.Name)
}
