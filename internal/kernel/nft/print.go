package nft

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Text prints the ruleset as `nft list table` does, one table after the other, with sets and chains
// in the order of their names, base chains last. Elements returns those of a set; nil prints none.
// The tool prints the elements of a set without ranges in the order of the kernel's hash.
func (r Ruleset) Text(elements func(Key) []Element) string {
	var b strings.Builder
	for _, f := range Families() {
		if _, exists := r.Tables[f]; exists {
			r.table(&b, f, elements)
		}
	}
	return b.String()
}

func (r Ruleset) table(b *strings.Builder, f Family, elements func(Key) []Element) {
	fmt.Fprintf(b, "table %s %s {\n", f, TableName)
	first := true
	block := func(kind, name string, lines []string) {
		if !first {
			b.WriteString("\n")
		}
		first = false
		fmt.Fprintf(b, "\t%s %s {\n", kind, name)
		for _, line := range lines {
			fmt.Fprintf(b, "\t\t%s\n", line)
		}
		b.WriteString("\t}\n")
	}
	for _, k := range keysOf(r.Sets, f, func(a, b Key) int { return a.Compare(b) }) {
		lines := r.Sets[k].lines(f)
		if elements != nil {
			lines = append(lines, elementLines(r.Sets[k], elements(k))...)
		}
		block(r.Sets[k].kind(), k.Name, lines)
	}
	for _, k := range keysOf(r.Chains, f, func(a, b Key) int {
		return cmp.Or(r.Chains[a].Base.Compare(r.Chains[b].Base), a.Compare(b))
	}) {
		block("chain", k.Name, r.Chains[k].lines(f))
	}
	b.WriteString("}\n")
}

// keysOf returns the keys of one family in order.
func keysOf[V any](all map[Key]V, f Family, compare func(a, b Key) int) []Key {
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(all)), func(k Key) bool { return k.Family != f })
	slices.SortFunc(keys, compare)
	return keys
}

// elementLines prints elements as the tool does those of a key of several fields, one a line.
func elementLines(s Set, list []Element) (out []string) {
	list = slices.SortedFunc(slices.Values(list), Element.Compare)
	for i, e := range list {
		line := "\t     " + e.Text(s)
		if i == 0 {
			line = "elements = { " + e.Text(s)
		}
		if i < len(list)-1 {
			line += ","
		} else {
			line += " }"
		}
		out = append(out, line)
	}
	return out
}

// lines prints the hook and the rules of a chain.
func (c Chain) lines(f Family) (out []string) {
	if c.Base != (Base{}) {
		out = append(out, c.Base.String())
	}
	for _, r := range c.Rules {
		out = append(out, r.Text(f))
	}
	return out
}

// Text prints the chain as `nft list chain` does inside of its table, one rule a line.
func (c Chain) Text(f Family) string { return strings.Join(c.lines(f), "\n") }
