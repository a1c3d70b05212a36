package nftables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
)

// Numbers of nf_tables (include/uapi/linux/netfilter/nf_tables.h).
const (
	newChain   = subsystem<<8 | 3
	getChain   = subsystem<<8 | 4
	newSet     = subsystem<<8 | 9
	getSet     = subsystem<<8 | 10
	newSetElem = subsystem<<8 | 12
	getSetElem = subsystem<<8 | 13

	chainTable   = 1
	chainName    = 3
	chainHook    = 4
	chainPolicy  = 5
	chainUse     = 6
	hookNumber   = 1
	hookPriority = 2

	ruleHandle = 3
	ruleExprs  = 4

	exprName = 1
	exprData = 2

	setName     = 2
	setFlags    = 3
	setInterval = 4
	elemsSet    = 2
	elemsList   = 3
	elemKey     = 1
	elemData    = 2
	elemFlags   = 3
	elemKeyEnd  = 10

	dataValue   = 1
	dataVerdict = 2
	verdictCode = 1
	typeMask    = 0x3fff // without the flags of nested attributes and of byte order
)

// exprFields say which attribute of an expression is which field of Expr.
var exprFields = map[string]map[uint16]func(*Expr, attrs, uint16){
	"immediate": {1: target, 2: operand},
	"bitwise":   {1: source, 2: target, 3: length, 4: operand, 5: second, 6: op},
	"byteorder": {1: source, 2: target, 3: op, 4: length},
	"cmp":       {1: source, 2: op, 3: operand},
	"range":     {1: source, 2: op, 3: operand, 4: second},
	"lookup":    {1: setOf, 2: source, 3: target, 5: op},
	"payload":   {1: target, 2: base, 3: offset, 4: length, 5: source},
	"meta":      {1: target, 2: key, 3: source},
	"ct":        {1: target, 2: key, 4: source},
	"fib":       {1: target},
	"rt":        {1: target},
	"socket":    {2: target},
	"hash":      {2: target},
	"numgen":    {1: target},
	"osf":       {1: target},
	"exthdr":    {1: target},
	"xfrm":      {1: target},
	"tunnel":    {2: target},
	"match":     {1: extension},
	"target":    {1: extension},
}

func source(e *Expr, a attrs, kind uint16) { e.Source = a.number(kind) }
func target(e *Expr, a attrs, kind uint16) { e.Target = a.number(kind) }
func key(e *Expr, a attrs, kind uint16)    { e.Key = a.number(kind) }
func op(e *Expr, a attrs, kind uint16)     { e.Op = a.number(kind) }
func base(e *Expr, a attrs, kind uint16)   { e.Base = a.number(kind) }
func offset(e *Expr, a attrs, kind uint16) { e.Offset = a.number(kind) }
func length(e *Expr, a attrs, kind uint16) { e.Len = a.number(kind) }
func setOf(e *Expr, a attrs, kind uint16)  { e.Set = a.text(kind) }
func second(e *Expr, a attrs, kind uint16) { e.More = a.data(kind) }

func extension(e *Expr, a attrs, kind uint16) { e.Extension = a.text(kind) }

func operand(e *Expr, a attrs, kind uint16) {
	if data, ok := a.nested(kind); ok {
		e.Data, e.Verdict = data.bytes(dataValue), data.verdict()
	}
}

// expr reads one element of the list of a rule.
func (a attrs) expr() Expr {
	e := Expr{Name: a.text(exprName)}
	data, ok := a.nested(exprData)
	if !ok {
		return e
	}
	for kind, take := range exprFields[e.Name] {
		if data.has(kind) {
			take(&e, data, kind)
		}
	}
	return e
}

func (a attrs) verdict() *Verdict {
	v, ok := a.nested(dataVerdict)
	if !ok {
		return nil
	}
	return &Verdict{Code: int32(v.number(verdictCode)), Chain: v.text(verdictChain)}
}

// attrs is a list of attributes. What is malformed reads as absent, and err says so.
type attrs struct {
	b    []byte
	fail *error
}

// each visits all attributes; those that have attributes in turn can be asked for them.
func (a attrs) each(visit func(kind uint16, value attrs)) {
	for b := a.b; len(b) >= attrLen; {
		n := int(native.Uint16(b))
		if n < attrLen || n > len(b) {
			*a.fail = fmt.Errorf("%w: attribute of %d bytes in %d", errMalformed, n, len(b))
			return
		}
		visit(native.Uint16(b[2:])&typeMask, attrs{b[attrLen:n], a.fail})
		b = b[min(align(n), len(b)):]
	}
}

func (a attrs) err() error { return *a.fail }

func (a attrs) nested(kind uint16) (out attrs, ok bool) {
	a.each(func(k uint16, value attrs) {
		if k == kind {
			out, ok = value, true
		}
	})
	return out, ok
}

func (a attrs) has(kind uint16) bool {
	_, ok := a.nested(kind)
	return ok
}

// bytes is a copy: the buffer of the socket is used again.
func (a attrs) bytes(kind uint16) []byte {
	v, _ := a.nested(kind)
	return bytes.Clone(v.b)
}

// data is the value inside of an attribute of data.
func (a attrs) data(kind uint16) []byte {
	v, ok := a.nested(kind)
	if !ok {
		return nil
	}
	return v.bytes(dataValue)
}

func (a attrs) text(kind uint16) string {
	v, _ := a.nested(kind)
	name, _, _ := bytes.Cut(v.b, []byte{0})
	return string(name)
}

// number is one in network byte order, 0 where there is none.
func (a attrs) number(kind uint16) uint32 {
	if v, ok := a.nested(kind); ok && len(v.b) == 4 {
		return binary.BigEndian.Uint32(v.b)
	}
	return 0
}

func (a attrs) long(kind uint16) uint64 {
	if v, ok := a.nested(kind); ok && len(v.b) == 8 {
		return binary.BigEndian.Uint64(v.b)
	}
	return 0
}

// appendNamed adds a question about something in a table, by its name.
func appendNamed(b []byte, kind, flags uint16, seq uint32, table Key, attr uint16, name string) []byte {
	mark := len(b)
	b = appendMessage(b, kind, flags, seq, families[table.Family], table.Name)
	b = appendAttr(b, attr, append([]byte(name), 0))
	native.PutUint32(b[mark:], uint32(len(b)-mark))
	return b
}

// dump sends a question and visits the answers of a kind until the kernel says that there
// are no more. What is gone meanwhile makes the dump ErrInterrupted.
func (x *exchange) dump(question []byte, kind uint16, visit func(family uint8, a attrs) error) error {
	return x.answered(question, kind, true, visit)
}

// ask sends a question that has one answer.
func (x *exchange) ask(question []byte, kind uint16, visit func(family uint8, a attrs) error) error {
	return x.answered(question, kind, false, visit)
}

func (x *exchange) answered(question []byte, kind uint16, many bool, visit func(family uint8, a attrs) error) error {
	x.seq++
	if err := x.wire.Send(question); err != nil {
		return err
	}
	interrupted := false
	var failed error
	err := x.answers(func(m message) (done bool, err error) {
		switch {
		case m.seq != x.seq:
			return false, nil
		case m.kind == nlError || m.kind == nlDone:
			errno, err := m.verdict()
			if errno == syscall.ENOENT {
				return true, errors.Join(err, ErrInterrupted)
			}
			return true, errors.Join(err, dumpFault(errno))
		case m.kind != kind || len(m.body) < familyLen:
			return false, nil
		}
		interrupted = interrupted || m.flags&flagIntr != 0
		if failed == nil {
			failed = visit(m.body[0], attrs{m.body[familyLen:], new(error)})
		}
		return !many, nil
	})
	switch {
	case errors.Is(err, errAbsent):
		return nil
	case err != nil:
		return err
	case interrupted:
		return ErrInterrupted
	}
	return failed
}
