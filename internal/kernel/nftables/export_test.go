package nftables

import "github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"

// Walk cuts a datagram into messages and reads all this package would read of each.
func Walk(b []byte) (messages int, tables []Key) {
	for len(b) > 0 {
		m, rest, err := nfnetlink.Next(b)
		if err != nil {
			return messages, tables
		}
		messages++
		b = rest
		_, _ = m.Verdict()
		_, _ = m.Offset()
		_, _ = readGeneration(m)
		if key, err := readTable(m); err == nil {
			tables = append(tables, key)
		}
	}
	return messages, tables
}

// AppendTable adds the description of a table, as a dump has it.
func AppendTable(b []byte, seq uint32, family uint8, name string) []byte {
	return appendMessage(b, newTable, 0x2, seq, family, name)
}

// DecodeRule reads what describes a rule, and a set's elements, as far as it can be read.
func DecodeRule(b []byte) (exprs []Expr, elements []Element, err error) {
	a := nfnetlink.Attributes(b)
	if list, ok := a.Get(ruleExprs); ok {
		list.Each(func(_ uint16, e attrs) { exprs = append(exprs, expr(e)) })
	}
	if list, ok := a.Get(elemsList); ok {
		list.Each(func(_ uint16, e attrs) { elements = append(elements, element(e)) })
	}
	return exprs, elements, a.Err()
}
