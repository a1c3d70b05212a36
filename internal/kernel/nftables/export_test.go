package nftables

// Walk cuts a datagram into messages and reads all this room would read of each.
func Walk(b []byte) (messages int, tables []Key) {
	for len(b) > 0 {
		m, rest, err := nextMessage(b)
		if err != nil {
			return messages, tables
		}
		messages++
		b = rest
		_, _ = m.verdict()
		_, _ = m.generation()
		if key, err := m.table(); err == nil {
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
	a := attrs{b, new(error)}
	if list, ok := a.nested(ruleExprs); ok {
		list.each(func(_ uint16, e attrs) { exprs = append(exprs, e.expr()) })
	}
	if list, ok := a.nested(elemsList); ok {
		list.each(func(_ uint16, e attrs) { elements = append(elements, e.element()) })
	}
	return exprs, elements, a.err()
}
