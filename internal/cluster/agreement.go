package cluster

import (
	"cmp"
	"maps"
	"slices"
)

// A ballot has the value that each node gives to one property.
type ballot struct{ nodes map[string][]string }

func (b *ballot) add(value, node string) {
	if b.nodes == nil {
		b.nodes = map[string][]string{}
	}
	b.nodes[value] = append(b.nodes[value], node)
}

// put records the nodes of one value.
func (b *ballot) put(value string, nodes []string) {
	if b.nodes == nil {
		b.nodes = map[string][]string{}
	}
	b.nodes[value] = nodes
}

// most returns the value that most nodes have, and how many of all have it. An empty value is
// unknown, and wins only alone.
func (b *ballot) most() (value string, have, of int) {
	values := slices.SortedFunc(maps.Keys(b.nodes), func(x, y string) int {
		return cmp.Or(compareBool(x == "", y == ""), cmp.Compare(len(b.nodes[y]), len(b.nodes[x])), cmp.Compare(y, x))
	})
	for _, list := range b.nodes {
		of += len(list)
	}
	if len(values) == 0 {
		return "", 0, 0
	}
	return values[0], len(b.nodes[values[0]]), of
}

// unanimous reports whether all nodes have one value.
func (b *ballot) unanimous() bool { return len(b.nodes) == 1 }

// compareBool orders false before true.
func compareBool(x, y bool) int {
	switch {
	case x == y:
		return 0
	case y:
		return -1
	}
	return 1
}

// vote records the value in common if all nodes have it. Else it calls odd for each node with
// another value than most.
func (r *Report) vote(name string, b *ballot, odd func(node, value, most string, have, of int)) {
	most, have, of := b.most()
	if b.unanimous() {
		if most != "" {
			r.Common = append(r.Common, Fact{name, most})
		}
		return
	}
	for _, value := range slices.Sorted(maps.Keys(b.nodes)) {
		if value == most {
			continue
		}
		for _, node := range b.nodes[value] {
			odd(node, value, most, have, of)
		}
	}
}
