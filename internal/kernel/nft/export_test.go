package nft

import "github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"

// WriteRule is the message that adds a rule.
func WriteRule(k Key, r Rule) []byte {
	w := &writer{}
	w.appendRule(k, r)
	return w.B
}

// WriteSet is the message that creates a set.
func WriteSet(k Key, s Set) []byte {
	w := &writer{}
	w.createSet(k, s)
	return w.B
}

// WriteElements is the message that adds elements.
func WriteElements(k Key, s Set, list []Element) []byte {
	w := &writer{}
	w.elements(k, s, false, list)
	return w.B
}

// ReadRule reads a message about a rule.
func ReadRule(f Family, m nfnetlink.Message) Rule { return parseRule(f, m.Attrs()) }

// ReadSet reads a message about a set.
func ReadSet(f Family, m nfnetlink.Message) Set { return parseSet(f, m.Attrs()) }

// ReadElements reads a message about elements.
func ReadElements(f Family, s Set, m nfnetlink.Message) ([]Element, bool) {
	var raw []rawElement
	if list, ok := m.Attrs().Get(elemsList); ok {
		list.Each(func(_ uint16, a nfnetlink.Attrs) { raw = append(raw, parseElement(a)) })
	}
	return parseElements(f, s, raw)
}

// Lowered reports whether the statements of a rule that was read are exactly its expressions.
func Lowered(f Family, r Rule, m nfnetlink.Message) bool {
	var exprs []expr
	if list, ok := m.Attrs().Get(ruleExprs); ok {
		exprs = parseExprs(list)
	}
	return equalExprs(r.lower(f), exprs)
}

// ReadOthers reads a message as all that has no reader of its own.
func ReadOthers(m nfnetlink.Message) (Base, uint32) {
	return parseBase(m.Attrs()), parseVersion(m.Attrs())
}
