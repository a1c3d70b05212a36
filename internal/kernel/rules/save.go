package rules

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// SaveTable is one table of an iptables-save dump.
type SaveTable struct {
	Name   string
	Chains []SaveChain
}

// SaveChain is one chain of a dump with its rules as printed, without
// "-A NAME". Policy is "-" for a user chain and "" for one that has rules
// but no declaration, which only a built-in chain can afford.
type SaveChain struct {
	Name, Policy string
	Rules        []string
}

// Builtin reports whether the kernel owns the chain.
func (c SaveChain) Builtin() bool { return c.Policy != "-" }

// ParseSave reads what iptables-save prints, counters dropped. A dump that ends inside a table is
// an error: a cut-off listing must not be used.
func ParseSave(r io.Reader) ([]SaveTable, error) {
	p := saveParser{index: map[string]int{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if err := p.line(lines.Text()); err != nil {
			return nil, fmt.Errorf("read save text: line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read save text: %w", err)
	}
	if p.open {
		return nil, fmt.Errorf("read save text: table %s has no COMMIT", p.tables[len(p.tables)-1].Name)
	}
	return p.tables, nil
}

// saveParser holds the table being read; index maps its chain names to
// positions.
type saveParser struct {
	tables []SaveTable
	index  map[string]int
	open   bool
}

func (p *saveParser) line(s string) error {
	switch {
	case s == "" || s[0] == '#':
		return nil
	case s[0] == '*':
		return p.begin(s[1:])
	case !p.open:
		return fmt.Errorf("%q outside of a table", s)
	case s == "COMMIT":
		p.commit()
		return nil
	case s[0] == ':':
		return p.chain(s[1:])
	default:
		return p.rule(s)
	}
}

func (p *saveParser) begin(name string) error {
	if p.open || name == "" || strings.ContainsFunc(name, unicode.IsSpace) {
		return fmt.Errorf("unexpected table %q", name)
	}
	p.tables = append(p.tables, SaveTable{Name: name})
	clear(p.index)
	p.open = true
	return nil
}

func (p *saveParser) chain(s string) error {
	f := strings.Fields(s)
	if len(f) < 2 {
		return fmt.Errorf("chain line %q has no policy", s)
	}
	if _, ok := p.index[f[0]]; ok {
		return fmt.Errorf("chain %s is declared twice or after its rules", f[0])
	}
	p.add(SaveChain{Name: f[0], Policy: f[1]})
	return nil
}

func (p *saveParser) add(c SaveChain) {
	t := &p.tables[len(p.tables)-1]
	p.index[c.Name] = len(t.Chains)
	t.Chains = append(t.Chains, c)
}

// commit closes the table; undeclared chains go last, as they do in print.
func (p *saveParser) commit() {
	p.open = false
	slices.SortStableFunc(p.tables[len(p.tables)-1].Chains, func(a, b SaveChain) int {
		return cmp.Compare(a.order(), b.order())
	})
}

func (c SaveChain) order() int {
	if c.Policy == "" {
		return 1
	}
	return 0
}

func (p *saveParser) rule(s string) error {
	if s[0] == '[' { // counters, printed with -c
		_, rest, ok := strings.Cut(s, "] ")
		if !ok {
			return fmt.Errorf("unfinished counters in %q", s)
		}
		s = rest
	}
	rest, ok := strings.CutPrefix(s, "-A ")
	if !ok {
		return fmt.Errorf("unknown line %q", s)
	}
	name, rule, _ := strings.Cut(rest, " ")
	if name == "" || strings.ContainsFunc(name, unicode.IsSpace) {
		return fmt.Errorf("rule %q names no chain", s)
	}
	if _, ok := p.index[name]; !ok {
		p.add(SaveChain{Name: name})
	}
	c := &p.tables[len(p.tables)-1].Chains[p.index[name]]
	c.Rules = append(c.Rules, trim(rule))
	return nil
}

// PrintSave writes tables the way iptables-save does, without counters;
// ParseSave reads it back unchanged.
func PrintSave(w io.Writer, tables []SaveTable) error {
	b := bufio.NewWriter(w)
	for _, t := range tables {
		fmt.Fprintf(b, "*%s\n", t.Name)
		for _, c := range t.Chains {
			if c.Policy != "" {
				fmt.Fprintf(b, ":%s %s [0:0]\n", c.Name, c.Policy)
			}
		}
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				fmt.Fprintf(b, "-A %s\n", trim(c.Name+" "+r))
			}
		}
		fmt.Fprintln(b, "COMMIT")
	}
	return b.Flush() // bufio keeps the first error for Flush
}

// WriteSave prints chains and jumps as save text, families and tables sorted, one "# ip" or "# ip6"
// line before each family. Each family's part can be replayed with `iptables-restore --noflush`;
// built-in chains are not declared, so their policy and foreign rules stay. The jumps of a hook
// have the order that first gives; nil sorts them by key.
func WriteSave(w io.Writer, chains map[ChainKey]Chain, jumps map[JumpKey]Jump, first func(a, b JumpKey) int) error {
	if first == nil {
		first = JumpKey.Compare
	}
	for _, f := range []Family{IPv4, IPv6} {
		text := saveText(f, chains, jumps, first)
		if text == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "# %s\n%s", f.Table(), text); err != nil {
			return fmt.Errorf("write save text of %s: %w", f, err)
		}
	}
	return nil
}

func saveText(f Family, chains map[ChainKey]Chain, jumps map[JumpKey]Jump, first func(a, b JumpKey) int) string {
	tables := tableSet{}
	for _, k := range sortedKeys(chains, ChainKey.Compare) {
		if k.Family == f {
			tables.at(k.Table).declare(noRow, k.Name)
			tables.at(k.Table).rules(noRow, k.Name, chains[k].Rules)
		}
	}
	for _, k := range sortedKeys(jumps, first) {
		if k.Family == f {
			tables.at(k.Table).rules(noRow, k.Hook, jumps[k].Rule(k.Target))
		}
	}
	return tables.render().text
}

// sortedKeys makes every walk over a map deterministic.
func sortedKeys[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	return keys
}
