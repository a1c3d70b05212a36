package nft

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// expr is one expression of a rule as the kernel has it: a name and attributes, sorted by kind.
// Attributes that this package does not know are kept as well, so that two expressions are equal only
// if the kernel does the same for both.
type expr struct {
	name  string
	attrs []attr
}

// attr is one attribute of an expression: bytes, or a value or verdict that is nested in it.
type attr struct {
	kind  uint16
	form  form
	value string
}

type form uint8

const (
	plain form = iota
	data       // NFTA_DATA_VALUE
	code       // NFTA_DATA_VERDICT: a code of four bytes, and the name of a chain
)

// Attributes of rules, of nested data and of expressions (include/uapi/linux/netfilter/nf_tables.h).
const (
	listElem = 1
	exprName = 1
	exprData = 2

	dataValue    = 1
	dataVerdict  = 2
	verdictCode  = 1
	verdictChain = 2

	registerVerdict = 0
	register1       = 1
	register2       = 2
	register32      = 8 // the first of the registers of four bytes
)

// dataAttrs are the attributes of expressions that nest a value.
var dataAttrs = map[string][]uint16{"cmp": {3}, "bitwise": {4, 5, 7}, "immediate": {2}, "range": {3, 4}}

// implied are attributes that the kernel adds by itself, with the value that has no effect.
var implied = map[string]map[uint16]string{
	"lookup":  {5: u32(0)},
	"bitwise": {6: u32(0)},
	"exthdr":  {5: u32(0)},
}

// ignored are attributes that say nothing about what the expression does.
var ignored = map[string][]uint16{
	"counter": {1, 2, 3}, // the counted packets and bytes
	"lookup":  {4},       // the number of a set within a transaction
}

func u32(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }
func u16(n uint16) string { return string(binary.BigEndian.AppendUint16(nil, n)) }

// host is a number in the byte order of registers that hold numbers of this machine.
func host(n uint32) string { return string(nfnetlink.Native.AppendUint32(nil, n)) }

func number(kind uint16, n uint32) attr { return attr{kind, plain, u32(n)} }
func value(kind uint16, v string) attr  { return attr{kind, data, v} }
func text(kind uint16, s string) attr   { return attr{kind, plain, s + "\x00"} }
func octet(kind uint16, n uint8) attr   { return attr{kind, plain, string([]byte{n})} }

// ex makes an expression; the attributes are in the order of their kinds.
func ex(name string, attrs ...attr) expr { return expr{name, attrs} }

func (e expr) equal(o expr) bool { return e.name == o.name && slices.Equal(e.attrs, o.attrs) }

func equalExprs(a, b []expr) bool { return slices.EqualFunc(a, b, expr.equal) }

// get returns the value of an attribute, empty where there is none.
func (e expr) get(kind uint16) string {
	for _, a := range e.attrs {
		if a.kind == kind {
			return a.value
		}
	}
	return ""
}

func (e expr) number(kind uint16) uint32 {
	if v := e.get(kind); len(v) == 4 {
		return binary.BigEndian.Uint32([]byte(v))
	}
	return 0
}

func (e expr) text(kind uint16) string { return strings.TrimSuffix(e.get(kind), "\x00") }

// String prints an expression that is no statement of this package.
func (e expr) String() string {
	var b strings.Builder
	b.WriteString(e.name)
	for _, a := range e.attrs {
		fmt.Fprintf(&b, " %d:%x", a.kind, a.value)
	}
	return b.String()
}

// append adds the expression to a message, as an element of a list.
func (e expr) append(b *nfnetlink.Builder) {
	element := b.Nest(listElem)
	b.Text(exprName, e.name)
	body := b.Nest(exprData)
	for _, a := range e.attrs {
		switch a.form {
		case plain:
			b.Bytes(a.kind, []byte(a.value))
		case data:
			nest := b.Nest(a.kind)
			b.Bytes(dataValue, []byte(a.value))
			b.Unnest(nest)
		case code:
			nest := b.Nest(a.kind)
			appendVerdict(b, a.value)
			b.Unnest(nest)
		}
	}
	b.Unnest(body)
	b.Unnest(element)
}

func appendVerdict(b *nfnetlink.Builder, v string) {
	nest := b.Nest(dataVerdict)
	b.Bytes(verdictCode, []byte(v[:4]))
	if len(v) > 4 {
		b.Text(verdictChain, v[4:])
	}
	b.Unnest(nest)
}

// parseExprs reads the list of expressions of a rule.
func parseExprs(list nfnetlink.Attrs) (out []expr) {
	list.Each(func(_ uint16, element nfnetlink.Attrs) {
		out = append(out, parseExpr(element))
	})
	return out
}

// counterPackets is the attribute of a counter with the number of packets (NFTA_COUNTER_PACKETS).
const counterPackets = 2

// parsePackets returns what the first counter in a list of expressions has counted; 0 without one.
func parsePackets(list nfnetlink.Attrs) (packets uint64) {
	found := false
	list.Each(func(_ uint16, element nfnetlink.Attrs) {
		if body, ok := element.Get(exprData); ok && !found && element.Text(exprName) == "counter" {
			packets, found = body.Long(counterPackets), true
		}
	})
	return packets
}

func parseExpr(element nfnetlink.Attrs) expr {
	e := expr{name: element.Text(exprName)}
	body, ok := element.Get(exprData)
	if !ok {
		return e
	}
	body.Each(func(kind uint16, v nfnetlink.Attrs) {
		a := attr{kind: kind}
		switch {
		case slices.Contains(ignored[e.name], kind):
			return
		case slices.Contains(dataAttrs[e.name], kind):
			a.form, a.value = parseData(v)
		default:
			a.value = string(v.Raw())
		}
		if quiet, ok := implied[e.name][kind]; ok && quiet == a.value {
			return
		}
		e.attrs = append(e.attrs, a)
	})
	slices.SortStableFunc(e.attrs, compareAttrs)
	return e
}

func compareAttrs(a, b attr) int { return int(a.kind) - int(b.kind) }

// parseData reads a nested value or verdict.
func parseData(v nfnetlink.Attrs) (form, string) {
	nest, ok := v.Get(dataVerdict)
	if !ok {
		return data, string(v.Bytes(dataValue))
	}
	c := nest.Bytes(verdictCode)
	if len(c) != 4 {
		nest.Fail("verdict of %d bytes", len(c))
		c = make([]byte, 4)
	}
	return code, string(c) + nest.Text(verdictChain)
}
